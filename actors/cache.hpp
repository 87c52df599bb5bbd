#pragma once
// The CACHE actor: upkeep of the block store. It evicts between the watermarks so that saves find
// room, ends leases and unsealed blocks whose time is over, and drops everything when told to.

#include <chrono>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "actors/sharing_watch.hpp"
#include "core/server_metrics.hpp"
#include "memory/lease_table.hpp"
#include "transport/engine/save_path.hpp"

namespace kvd {

// How often upkeep runs; leases and unsealed blocks may outlive their time by this much.
inline constexpr std::chrono::milliseconds upkeep_period{500};
// Blocks evicted before other messages get their turn.
inline constexpr std::size_t blocks_per_trim = 256;

struct cache_state {
  sharing_watch sharing;
  static inline const char* name = "cache";
};

// What it keeps up; everything outlives the actor.
struct cache_parts {
  block_store* store;
  lease_table* leases;
  save_path* saves;
  const instance_table* instances;
  const clock* time;
  control_metrics* metrics;
};

cache_actor::behavior_type cache(cache_actor::stateful_pointer<cache_state> self,
                                 cache_parts parts);

}  // namespace kvd
