#pragma once
// The metaserver role, put together: directory, its upkeep, and both listeners.
//
//   create(): ports are bound, requests are answered
//   destructor: ends listeners, then the actor, then the directory
//
// Owner: run_process (or a test), one thread.

#include <atomic>
#include <memory>

#include <caf/actor_system.hpp>

#include "actors/metaserver_http.hpp"
#include "actors/metaserver_options.hpp"
#include "actors/server_node.hpp"
#include "core/clock.hpp"
#include "core/directory_metrics.hpp"
#include "core/random.hpp"
#include "memory/directory.hpp"
#include "transport/grpc/metaserver_service.hpp"

namespace kvd {

class metaserver_node {
public:
  // The error says what to change.
  static result<std::unique_ptr<metaserver_node>> create(const metaserver_options& options);
  ~metaserver_node();
  metaserver_node(const metaserver_node&) = delete;
  metaserver_node& operator=(const metaserver_node&) = delete;

  std::uint16_t grpc_port() const noexcept { return grpc_->port(); }
  std::uint16_t http_port() const noexcept { return http_->port(); }

private:
  explicit metaserver_node(const metaserver_options& options);
  result<void> listen();

  const metaserver_options options_;
  system_clock clock_;
  system_random random_;
  metaserver_metrics metrics_;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<directory> store_;
  actor_config actor_config_;
  std::unique_ptr<caf::actor_system> actors_;
  metaserver_actor keeper_;
  std::unique_ptr<metaserver_server> grpc_;
  std::unique_ptr<http::server> http_;
};

// Records for which a part of the memory that is there now is enough; what --max-entries is when it
// is not given.
std::uint64_t entries_by_memory();

}  // namespace kvd
