#pragma once
// The actors of a server that shares with other nodes. REGISTRAR keeps metaservers right, PEER
// brings blocks from other nodes: each runs the tasks of its class in order, and its upkeep.

#include <chrono>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "actors/peer_tier.hpp"
#include "core/server_metrics.hpp"
#include "memory/transfer_locks.hpp"
#include "transport/directory/announcer.hpp"

namespace kvd {

inline constexpr std::chrono::milliseconds registrar_tick_period{500};
inline constexpr std::chrono::milliseconds peer_tick_period{200};

struct registrar_state {
  static inline const char* name = "registrar";
};
struct peer_state {
  static inline const char* name = "peer";
};

// What they are given outlives them.
registrar_actor::behavior_type
keep_announced(registrar_actor::stateful_pointer<registrar_state> self, announcer* what,
               control_metrics* metrics, const clock* time);
peer_actor::behavior_type keep_peers(peer_actor::stateful_pointer<peer_state> self, peer_tier* tier,
                                     transfer_locks* locks, control_metrics* metrics,
                                     const clock* time);

}  // namespace kvd
