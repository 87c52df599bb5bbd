#pragma once
// Carries out Load: redeems leases, copies their blocks to the worker, raises the client's flag.
//
// The RPC is answered when the copy is queued; the end is told through the flag alone, and every
// failure after the flag was attached is written there too. A load stops at the next chunk, and
// never writes again, when its client unlinks the flag, its instance is cancelled, or its deadline
// passes: the engine may have given the blocks to another request by then.
//
// Threads: start() on any; the rest on the device's copy threads.

#include <optional>
#include <vector>

#include "engine.pb.h"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"
#include "memory/lease_table.hpp"
#include "transport/device/copy_job.hpp"
#include "transport/device/load_state.hpp"
#include "transport/engine/instance.hpp"
#include "transport/engine/job_pool.hpp"

namespace kvd {

class load_path {
public:
  // The references outlive it, and it outlives all copies.
  load_path(block_store& store, lease_table& leases, const clock& time, copy_metrics& metrics);
  ~load_path();

  // Lease ids must have 16 bytes; checked before the flag is touched.
  static result<void> check_leases(const pegaflow::LoadRequest& request);
  // Queues the copies. A failure was written to `flag` as well. `request` may go when it returns.
  result<void> start(operation running, const pegaflow::LoadRequest& request, load_state flag);
  // Loads queued or being copied.
  std::size_t running() const noexcept { return jobs_.in_use(); }

private:
  struct job;
  struct target_group;

  result<void> prepare(job& work, const pegaflow::LoadRequest& request);
  result<void> add_groups(job& work, const pegaflow::LoadRequest& request);
  result<void> add_load(job& work, const pegaflow::LeaseLoad& load);
  result<void> add_targets(job& work, const target_group& group,
                           const pegaflow::LoadBlockIds& targets, scope_id in,
                           std::span<const block_index> blocks);
  void add_block(job& work, const target_group& group, block_index block, std::uint32_t block_id);
  void copied(job& work, copy_outcome outcome);
  void finish(job& work, std::int64_t state);

  block_store& store_;
  lease_table& leases_;
  const clock& clock_;
  copy_metrics& metrics_;
  job_pool<job> jobs_;
};

}  // namespace kvd
