#pragma once
// The ENGINE actor: gives registrations and sessions their order. State: instance_registry.

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/instance_registry.hpp"
#include "actors/interfaces.hpp"
#include "core/clock.hpp"

namespace kvd {

struct engine_state {
  static inline const char* name = "engine";
};

// `registry` outlives the actor; nobody else touches it while the actor lives.
engine_actor::behavior_type engine(engine_actor::stateful_pointer<engine_state> self,
                                   instance_registry* registry, control_metrics* metrics,
                                   const clock* time);

}  // namespace kvd
