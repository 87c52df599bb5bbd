#pragma once
// The SSD actor: the life of the SSD tier. It gives up fetches that nobody waits for, and switches
// the tier on again after an error. Reads and writes run on the tier's own threads.

#include <chrono>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "core/server_metrics.hpp"
#include "storage/ssd_tier.hpp"

namespace kvd {

inline constexpr std::chrono::milliseconds ssd_tick_period{500};

struct ssd_state {
  static inline const char* name = "ssd";
};

// `tier`, `metrics` and `time` outlive the actor.
ssd_actor::behavior_type keep_ssd(ssd_actor::stateful_pointer<ssd_state> self, ssd_tier* tier,
                                  control_metrics* metrics, const clock* time);

}  // namespace kvd
