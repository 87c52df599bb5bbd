#include "actors/metaserver_http.hpp"

#include <algorithm>
#include <memory>

#include <caf/send.hpp>
#include <prometheus/text_serializer.h>

#include "actors/http_answers.hpp"
#include "actors/metaserver_metrics.hpp"

namespace kvd {

namespace {

using namespace http_answers;
using shared_view = std::shared_ptr<const metaserver_view>;

const char* state_name(node_state state) {
  switch (state) {
  case node_state::fresh: return "fresh";
  case node_state::stale: return "stale";
  case node_state::leaving: return "leaving";
  }
  return "?";
}

json::array nodes_json(const directory& store) {
  auto nodes = store.nodes();
  std::ranges::sort(nodes, {}, &directory_node::node);
  json::array out;
  for (const auto& each : nodes) {
    out.push_back({{"node", each.node},
                   {"state", state_name(each.state)},
                   {"blocks", each.owners},
                   {"seen_ago_seconds", each.seen_seconds_ago},
                   {"node_id", each.node_id}});
  }
  return out;
}

std::vector<std::string> why_not_ready(const metaserver_view& view) {
  std::vector<std::string> reasons;
  if (view.stopping.load()) reasons.emplace_back("stopping");
  if (view.metrics.control.task_failures.value() > 0) {
    reasons.emplace_back("a background task failed; see the log");
  }
  return reasons;
}

json::object usage_json(const directory_usage& usage) {
  const auto bytes = usage.owners == 0 ? 0.0
                                       : static_cast<double>(usage.memory_bytes) /
                                             static_cast<double>(usage.owners);
  return {{"blocks", usage.keys},
          {"entries", usage.owners},
          {"entries_limit", usage.owners_max},
          {"entries_refused", usage.refused_owners},
          {"memory_bytes", usage.memory_bytes},
          {"per_entry_bytes", bytes}};
}

json::object sweeps_json(const metaserver_options& options, const directory_usage& usage) {
  return {{"stale_after_seconds", options.node_stale.count()},
          {"ttl_seconds", std::chrono::seconds(options.ttl).count()},
          {"interval_seconds", options.sweep_interval.count()},
          {"done", usage.sweeps},
          {"removed_entries", usage.swept_owners},
          {"removed_blocks", usage.swept_keys},
          {"removed_nodes", usage.swept_nodes}};
}

http::response status_answer(const metaserver_view& view) {
  const auto usage = view.store.usage();
  const auto up = std::chrono::duration_cast<std::chrono::seconds>(view.time.now() - view.started);
  return json_answer(200, {{"version", KVD_VERSION},
                           {"role", "metaserver"},
                           {"directory_id", view.store.id()},
                           {"uptime_seconds", up.count()},
                           {"state", view.stopping.load() ? "stopping" : "serving"},
                           {"directory", usage_json(usage)},
                           {"sweeps", sweeps_json(view.options, usage)},
                           {"nodes", nodes_json(view.store)}});
}

void purge(const metaserver_view& view, http::responder respond) {
  const auto kept = std::make_shared<http::responder>(std::move(respond));
  const auto to = [kept](const result<purged_nodes>& outcome) {
    (*kept)(outcome ? json_answer(200, {{"purged_nodes", strings(outcome->nodes)},
                                        {"removed_owners", outcome->owners}})
                    : error_answer(outcome.error()));
  };
  caf::anon_send(view.keeper, message::purge_nodes{reply<purged_nodes>(to)});
}

void add_reading_routes(const shared_view& view, std::vector<http::route>& routes) {
  routes.push_back(get(
      "/health", "Whether the process lives.", {{200, text_type}},
      [](const http::request&, http::responder reply) { reply(answer(200, text_type, "ok")); }));
  routes.push_back(
      get("/ready", "Whether to ask it; if not, why.", {{200, json_type}, {503, json_type}},
          [view](const http::request&, http::responder reply) {
            const auto reasons = why_not_ready(*view);
            reply(json_answer(reasons.empty() ? 200 : 503,
                              {{"ready", reasons.empty()}, {"reasons", strings(reasons)}}));
          }));
  routes.push_back(
      get("/status", "What the directory holds, its limits, sweeps and nodes.", {{200, json_type}},
          [view](const http::request&, http::responder reply) { reply(status_answer(*view)); }));
  routes.push_back(get("/nodes", "Every node: whether it is fresh, how many blocks it holds.",
                       {{200, json_type}}, [view](const http::request&, http::responder reply) {
                         reply(json_answer(200, {{"nodes", nodes_json(view->store)}}));
                       }));
  routes.push_back(get("/config", "Every effective option and where its value comes from.",
                       {{200, json_type}}, [view](const http::request&, http::responder reply) {
                         reply(answer(200, json_type, view->options.effective_json + "\n"));
                       }));
  routes.push_back(get(
      "/metrics", "Prometheus text.", {{200, exposition_type}},
      [view](const http::request&, http::responder reply) {
        const auto all = metaserver_families(view->metrics, view->store.usage(), view->store.id());
        reply(answer(200, exposition_type, prometheus::TextSerializer{}.Serialize(all)));
      }));
}

}  // namespace

std::vector<http::route> metaserver_routes(metaserver_view from) {
  const auto view = std::make_shared<const metaserver_view>(std::move(from));
  std::vector<http::route> routes;
  add_reading_routes(view, routes);
  routes.push_back(destructive_post(
      "/nodes/purge", "Forgets every node that is stale now.",
      {{200, json_type}, {500, text_type}, {503, text_type}},
      [view](const http::request&, http::responder respond) { purge(*view, std::move(respond)); }));
  return routes;
}

}  // namespace kvd
