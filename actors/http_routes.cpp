#include "actors/http_routes.hpp"

#include <memory>

#include <fmt/format.h>

#include "actors/http_answers.hpp"

namespace kvd {

namespace {

using namespace http_answers;

void add_state_routes(server_http_backend& backend, std::vector<http::route>& routes) {
  routes.push_back(get(
      "/health", "Whether the process lives, and how far its start is.", {{200, text_type}},
      [&backend](const http::request&, http::responder reply) {
        const auto state = backend.health();
        reply(answer(200, text_type,
                     state.started ? "ok" : fmt::format("starting {} %", state.percent_started)));
      }));
  routes.push_back(
      get("/ready", "Whether to send work here; if not, why.", {{200, json_type}, {503, json_type}},
          [&backend](const http::request&, http::responder reply) {
            const auto state = backend.ready();
            const bool ready = state.reasons.empty();
            reply(json_answer(ready ? 200 : 503,
                              {{"ready", ready}, {"reasons", strings(state.reasons)}}));
          }));
  routes.push_back(get("/status", "What the server holds and does now.", {{200, json_type}},
                       [&backend](const http::request&, http::responder reply) {
                         reply(answer(200, json_type, backend.status_json() + "\n"));
                       }));
  routes.push_back(get("/config", "Every effective option and where its value comes from.",
                       {{200, json_type}}, [&backend](const http::request&, http::responder reply) {
                         reply(answer(200, json_type, backend.config_json() + "\n"));
                       }));
  routes.push_back(get("/metrics", "Prometheus text; 404 when it is switched off.",
                       {{200, exposition_type}, {404, text_type}},
                       [&backend](const http::request&, http::responder reply) {
                         auto text = backend.metrics_text();
                         reply(text ? answer(200, exposition_type, std::move(*text))
                                    : answer(404, text_type, "metrics not enabled\n"));
                       }));
  routes.push_back(get("/instances", "The ids of all registered instances.", {{200, json_type}},
                       [&backend](const http::request&, http::responder reply) {
                         reply(json_answer(200, {{"instances", strings(backend.instances())}}));
                       }));
}

void clean_instances(server_http_backend& backend, const http::request& incoming,
                     http::responder respond) {
  std::optional<std::string> id;
  if (const auto given = incoming.query.find("id"); given != incoming.query.end())
    id = given->second;
  // An empty id is a mistake in a script; it must not be read as "all of them".
  if (id && id->empty()) {
    respond(answer(400, text_type, "the parameter id is empty; leave it out to mean all\n"));
    return;
  }
  // Shared by the copies that std::function may make; the last one answers 500 if none was called.
  const auto kept = std::make_shared<http::responder>(std::move(respond));
  backend.cleanup_instances(id, [kept, id](result<instances_cleanup_report> outcome) {
    if (outcome) {
      (*kept)(json_answer(200, {{"removed_instances", strings(outcome->removed_instances)},
                                {"removed_tensors", outcome->removed_tensors}}));
    } else if (id && http_status(outcome.error().code) == 404) {
      (*kept)(answer(404, text_type, fmt::format("instance {} not found\n", *id)));
    } else {
      (*kept)(error_answer(outcome.error()));
    }
  });
}

void clean_memory(server_http_backend& backend, http::responder respond) {
  const auto kept = std::make_shared<http::responder>(std::move(respond));
  backend.cleanup_memory([kept](result<memory_cleanup_report> outcome) {
    if (!outcome) {
      (*kept)(error_answer(outcome.error()));
      return;
    }
    (*kept)(json_answer(200, {{"evicted_blocks", outcome->evicted_blocks},
                              {"evicted_bytes", outcome->evicted_bytes},
                              {"reclaimed_bytes", outcome->reclaimed_bytes},
                              {"still_referenced_blocks", outcome->still_referenced_blocks}}));
  });
}

void add_cleanup_routes(server_http_backend& backend, std::vector<http::route>& routes) {
  const answers known = {{200, json_type}, {500, text_type}, {503, text_type}};
  auto instances = destructive_post(
      "/instances/cleanup", "Removes one instance, or all of them without id; blocks stay.", known,
      [&backend](const http::request& incoming, http::responder respond) {
        clean_instances(backend, incoming, std::move(respond));
      });
  instances.parameters = {"id"};
  instances.answers.insert(instances.answers.end(), {{400, text_type}, {404, text_type}});
  routes.push_back(std::move(instances));
  routes.push_back(destructive_post("/cache/memory/cleanup",
                                    "Drops every cached block of RAM; leases end.", known,
                                    [&backend](const http::request&, http::responder respond) {
                                      clean_memory(backend, std::move(respond));
                                    }));
}

}  // namespace

std::vector<http::route> server_routes(server_http_backend& backend) {
  std::vector<http::route> routes;
  add_state_routes(backend, routes);
  add_cleanup_routes(backend, routes);
  return routes;
}

}  // namespace kvd
