#include "actors/http_routes.hpp"

#include <memory>

#include <boost/json.hpp>
#include <fmt/format.h>

namespace kvd {

namespace {

namespace json = boost::json;

constexpr const char* json_type = "application/json";
constexpr const char* text_type = "text/plain; charset=utf-8";
// What Prometheus' scraper asks for; without the version it guesses.
constexpr const char* exposition_type = "text/plain; version=0.0.4; charset=utf-8";

http::response answer(unsigned status, std::string_view content_type, std::string body) {
  http::response out;
  out.status = status;
  out.content_type = content_type;
  out.body = std::move(body);
  return out;
}

http::response json_answer(unsigned status, const json::object& body) {
  return answer(status, json_type, json::serialize(body) + "\n");
}

unsigned http_status(errc code) {
  switch (code) {
  case errc::invalid_argument: return 400;
  case errc::permission_denied: return 403;
  case errc::instance_missing:
  case errc::not_found: return 404;
  case errc::limit_exceeded: return 429;
  case errc::unavailable: return 503;
  case errc::cancelled: return 504;
  default: return 500;
  }
}

http::response error_answer(const error& failure) {
  return answer(http_status(failure.code), text_type,
                fmt::format("{}: {}\n", name(failure.code), failure.detail));
}

json::array strings(const std::vector<std::string>& from) {
  json::array out;
  out.reserve(from.size());
  for (const auto& each : from)
    out.emplace_back(each);
  return out;
}

using handler = std::function<void(const http::request&, http::responder)>;
using answers = std::vector<std::pair<unsigned, std::string>>;

http::route get(std::string path, std::string summary, answers known, handler handle) {
  http::route out;
  out.method = "GET";
  out.path = std::move(path);
  out.summary = std::move(summary);
  out.answers = std::move(known);
  out.handle = std::move(handle);
  return out;
}

http::route destructive_post(std::string path, std::string summary, answers known, handler handle) {
  auto out = get(std::move(path), std::move(summary), std::move(known), std::move(handle));
  out.method = "POST";
  out.who = http::access::destructive;
  return out;
}

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
