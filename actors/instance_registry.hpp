#pragma once
// Which instances exist and how they end: the plain state behind the ENGINE actor.
//
//   register_worker()* -> [registering] -> sealed by the last worker -> close -> idle() -> gone
//
// Closing takes the instance out of the table at once (no new operation finds it), then waits for
// the copies that run; only then is its memory let go and the closer answered. Blocks stay.
//
// Owner: one thread at a time (the actor). `when_idle` of an instance is called on copy threads and
// must only pass the serial on to whoever calls idle().

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces.hpp"
#include "core/server_metrics.hpp"
#include "memory/lease_table.hpp"
#include "transport/engine/instance.hpp"
#include "transport/engine/registration.hpp"

namespace kvd {

class instance_registry {
public:
  using idle_notice = std::function<void(std::uint64_t serial)>;

  // The references outlive it.
  instance_registry(instance_table& table, block_store& store, lease_table& leases,
                    device_opener& opener, control_metrics& metrics)
      : table_(table), store_(store), leases_(leases), opener_(opener), metrics_(metrics) {}

  // `told` is called, on the actor's thread, with the serial of each instance that is gone.
  void on_gone(std::function<void(std::uint64_t)> told) { told_gone_ = std::move(told); }

  result<void> register_worker(const pegaflow::RegisterContextRequest& request,
                               const idle_notice& when_idle);
  // Answered when it is gone; instance_missing when there is none.
  void unregister(const std::string& instance_id, const reply<void>& answer);
  // All instances when the id is empty; not_found when one was named that does not exist.
  void cleanup(const std::string& instance_id, const reply<removed_instances>& answer);
  void session_opened(const std::string& instance_id, std::uint64_t token);
  // The newest session of an instance ended: the instance goes, and its loads stop.
  void session_closed(const std::string& instance_id, std::uint64_t token);
  // The copies of a closing instance have drained.
  void idle(std::uint64_t serial);

private:
  using gone = std::function<void(const instance&, std::uint64_t tensors)>;
  struct closing {
    std::shared_ptr<const instance> last;
    std::vector<gone> waiting;
  };
  void close(const std::string& instance_id, bool cancel, gone then);

  instance_table& table_;
  block_store& store_;
  lease_table& leases_;
  device_opener& opener_;
  control_metrics& metrics_;
  std::function<void(std::uint64_t)> told_gone_;
  std::map<std::string, std::shared_ptr<const instance>> open_;
  std::map<std::uint64_t, closing> closing_;       // by serial
  std::map<std::string, std::uint64_t> sessions_;  // newest token of each instance id
  std::uint64_t next_serial_ = 1;
};

}  // namespace kvd
