#pragma once
// The METASERVER actor: upkeep of the directory, a slice at a time. Requests never go through it:
// they run on gRPC's threads, so heartbeats wait neither for a sweep nor for a node's removal.

#include <chrono>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "core/clock.hpp"
#include "core/directory_metrics.hpp"

namespace kvd {

// How soon the removal of a node begins; its blocks are hidden before that.
inline constexpr std::chrono::milliseconds directory_tick{100};

struct metaserver_state {
  // An aggregate would be made from the actor's pointer, which is true as a bool.
  metaserver_state() = default;
  bool slicing = false;  // a slice message is under way
  time_point next_sweep{};
  static inline const char* name = "metaserver";
};

// What it keeps up; everything outlives the actor.
struct metaserver_parts {
  directory* store;
  metaserver_metrics* metrics;
  const clock* time;
  std::chrono::seconds sweep_interval;
};

metaserver_actor::behavior_type
keep_directory(metaserver_actor::stateful_pointer<metaserver_state> self, metaserver_parts parts);

}  // namespace kvd
