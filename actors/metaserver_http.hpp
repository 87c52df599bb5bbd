#pragma once
// The admin endpoints of the metaserver role.
//
//   GET  /health        200 "ok"
//   GET  /ready         200 {"ready":true,"reasons":[]}, 503 with reasons
//   GET  /status        200 entries, limits, sweeps, nodes
//   GET  /nodes         200 {"nodes":[{"node":..,"node_id":..,"state":..,..}]}
//   GET  /config        200 every effective option and where its value comes from
//   GET  /metrics       200 Prometheus text
//   POST /nodes/purge   200 {"purged_nodes":[...],"removed_owners":N}; loopback or the admin token
//
// Called on the HTTP thread. A store over the network answers usage() and nodes() from what it
// heard last, so nothing here waits.

#include <atomic>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/metaserver_options.hpp"
#include "core/clock.hpp"
#include "core/directory_metrics.hpp"
#include "transport/http/http_server.hpp"

namespace kvd {

// Everything that is read; all outlive the HTTP server.
struct metaserver_view {
  const metaserver_options& options;
  const clock& time;
  const metaserver_metrics& metrics;
  const directory& store;
  const std::atomic<bool>& stopping;
  time_point started;
  metaserver_actor keeper;
};

std::vector<http::route> metaserver_routes(metaserver_view view);

}  // namespace kvd
