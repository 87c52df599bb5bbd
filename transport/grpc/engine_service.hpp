#pragma once
// PegaFlow's Engine service over gRPC: decode, bound, answer.
//
// Save, Load, Query and Release run on gRPC's threads straight against the engine plane; what
// changes registrations goes to `engine_control`, which an actor implements. Statuses are the
// wire's: the client turns INVALID_ARGUMENT into ValueError, INTERNAL into PegaflowInternal, and
// everything else into PegaFlowError.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine.pb.h"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/server_metrics.hpp"
#include "memory/lease_table.hpp"
#include "transport/engine/instance.hpp"
#include "transport/engine/load_path.hpp"
#include "transport/engine/query_path.hpp"
#include "transport/engine/save_path.hpp"
#include "transport/engine/transfer_desk.hpp"

namespace kvd {

// What needs an order: one owner decides. Each `done` is called exactly once, on any thread.
class engine_control {
public:
  using done = std::function<void(result<void>)>;
  virtual ~engine_control() = default;
  // `request` lives until `answer` is called.
  virtual void register_worker(const pegaflow::RegisterContextRequest& request, done answer) = 0;
  virtual void unregister(const std::string& instance_id, done answer) = 0;
  // A session of the instance began or ended; `token` rises with every session.
  virtual void session_opened(const std::string& instance_id, std::uint64_t token) = 0;
  virtual void session_closed(const std::string& instance_id, std::uint64_t token) = 0;
  virtual void shutdown() = 0;
};

// What the service works with; everything outlives it.
struct engine_plane {
  instance_table& instances;
  query_path& queries;
  save_path& saves;
  load_path& loads;
  lease_table& leases;
  engine_control& control;
  rpc_metrics& metrics;
  const clock& time;
  // Set while draining: new work is refused as UNAVAILABLE, loads of leased blocks go on.
  const std::atomic<bool>& draining;
  std::string boot_id;
  transfer_desk* transfers = nullptr;  // null: nothing is shared with other nodes
};

class engine_server {
public:
  // Binds `address` ("127.0.0.1:50055"; port 0 picks one) and serves. errc::io names the address.
  static result<std::unique_ptr<engine_server>> start(const std::string& address,
                                                      engine_plane plane);
  virtual ~engine_server() = default;
  virtual std::uint16_t port() const noexcept = 0;
  // Stops accepting, waits for calls until `grace_ms`, then cancels what is left (open sessions
  // included). Idempotent.
  virtual void stop(unsigned grace_ms) = 0;
};

}  // namespace kvd
