#pragma once
// PegaFlow's MetaServer service and kvd's Directory service over gRPC, on one port: decode, bound,
// ask the directory, answer.
//
// Statuses are PegaFlow's: INVALID_ARGUMENT for no UUID and an empty query, FAILED_PRECONDITION
// "unknown node" and "stale node session", ok = false for an insert or removal of nothing.
// RESOURCE_EXHAUSTED says that the directory is full, CANCELLED that nobody waits any more.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/clock.hpp"
#include "core/directory_metrics.hpp"
#include "core/error.hpp"
#include "memory/directory.hpp"

namespace kvd {

// What the services work with; everything outlives them.
struct directory_plane {
  directory& store;
  metaserver_metrics& metrics;
  const clock& time;
  std::chrono::seconds stale_after;
  // Runs a call of a store that blocks on a thread that may wait; false: too much waits already.
  // Empty for a store that does not block: calls run on gRPC's threads.
  std::function<bool(std::function<void()>)> elsewhere = {};
};

class metaserver_server {
public:
  // Binds `address` ("127.0.0.1:50056"; port 0 picks one) and serves. errc::io names the address.
  static result<std::unique_ptr<metaserver_server>> start(const std::string& address,
                                                          directory_plane plane);
  virtual ~metaserver_server() = default;
  virtual std::uint16_t port() const noexcept = 0;
  // Stops accepting, waits for calls until `grace_ms`, then cancels what is left. Idempotent.
  virtual void stop(unsigned grace_ms) = 0;
};

}  // namespace kvd
