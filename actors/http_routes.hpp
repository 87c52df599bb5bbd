#pragma once
// The admin endpoints of the server role: paths, status codes and JSON shapes. What they report and
// do is the backend's, which the node implements.
//
//   GET  /health                 200 "ok", or "starting 42 %" while the pool is being claimed
//   GET  /ready                  200 {"ready":true,"reasons":[]}, 503 with reasons
//   GET  /status, /config        200 JSON of the backend
//   GET  /metrics                200 Prometheus text, 404 when it is switched off
//   GET  /instances              200 {"instances":["a","b"]}
//   POST /instances/cleanup[?id] 200 {"removed_instances":[...],"removed_tensors":N}, 404
//   POST /cache/memory/cleanup   200 {"evicted_blocks":N,"evicted_bytes":N,"reclaimed_bytes":N,
//                                     "still_referenced_blocks":N}
// The shapes of PegaFlow's endpoints are PegaFlow's. Both POST routes are destructive: loopback or
// the admin token.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "transport/http/http_server.hpp"

namespace kvd {

struct health_report {
  bool started = false;          // the pool is claimed and the Engine service answers
  unsigned percent_started = 0;  // 0..100, of the pool
};

struct readiness_report {
  std::vector<std::string> reasons;  // why not; empty: ready
};

struct instances_cleanup_report {
  std::vector<std::string> removed_instances;
  std::uint64_t removed_tensors = 0;
};

struct memory_cleanup_report {
  std::uint64_t evicted_blocks = 0;
  std::uint64_t evicted_bytes = 0;            // footprint that left the cache
  std::uint64_t reclaimed_bytes = 0;          // of these, what went back to the pool at once
  std::uint64_t still_referenced_blocks = 0;  // held by leases or copies for a while
};

// Called on the HTTP thread; must not block. A `reply` may be called later, from any thread; one
// that is dropped answers 500. Outlives the HTTP server.
class server_http_backend {
public:
  virtual ~server_http_backend() = default;
  virtual health_report health() = 0;
  virtual readiness_report ready() = 0;
  virtual std::string status_json() = 0;  // one JSON object
  virtual std::string config_json() = 0;  // one JSON object
  virtual std::vector<std::string> instances() = 0;
  // Nothing: Prometheus is switched off.
  virtual std::optional<std::string> metrics_text() = 0;
  // `id` empty: all of them. errc::not_found or instance_missing: nobody knows that id.
  using instances_reply = std::function<void(result<instances_cleanup_report>)>;
  virtual void cleanup_instances(std::optional<std::string> id, instances_reply reply) = 0;
  using memory_reply = std::function<void(result<memory_cleanup_report>)>;
  virtual void cleanup_memory(memory_reply reply) = 0;
};

// REQUIRES: backend outlives the server that serves the routes.
std::vector<http::route> server_routes(server_http_backend& backend);

}  // namespace kvd
