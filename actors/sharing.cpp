#include "actors/sharing.hpp"

#include "actors/guarded.hpp"

namespace kvd {

registrar_actor::behavior_type
keep_announced(registrar_actor::stateful_pointer<registrar_state> self, announcer* what,
               control_metrics* metrics, const clock* time) {
  // The first tick comes from outside, once this node can answer.
  return {
      [=](const message::tick&) {
        guarded("registrar", *metrics, *time, [&] { what->tick(); });
        self->delayed_send(self, registrar_tick_period, message::tick{});
      },
      [=](const message::run& m) { guarded("registrar", *metrics, *time, [&] { m.task(); }); },
      [self](const message::stop&) { self->quit(); },
  };
}

peer_actor::behavior_type keep_peers(peer_actor::stateful_pointer<peer_state> self, peer_tier* tier,
                                     transfer_locks* locks, control_metrics* metrics,
                                     const clock* time) {
  self->delayed_send(self, peer_tick_period, message::tick{});
  return {
      [=](const message::tick&) {
        guarded("peer", *metrics, *time, [&] {
          tier->tick();
          locks->expire();
        });
        self->delayed_send(self, peer_tick_period, message::tick{});
      },
      [=](const message::run& m) { guarded("peer", *metrics, *time, [&] { m.task(); }); },
      [=](const message::instance_gone& m) {
        guarded("peer", *metrics, *time, [&] { tier->forget_instance(m.serial); });
      },
      [self](const message::stop&) { self->quit(); },
  };
}

}  // namespace kvd
