#include "actors/ssd.hpp"

#include "actors/guarded.hpp"

namespace kvd {

ssd_actor::behavior_type keep_ssd(ssd_actor::stateful_pointer<ssd_state> self, ssd_tier* tier,
                                  control_metrics* metrics, const clock* time) {
  self->delayed_send(self, ssd_tick_period, message::tick{});
  return {
      [=](const message::tick&) {
        guarded("ssd", *metrics, *time, [&] { tier->tick(); });
        self->delayed_send(self, ssd_tick_period, message::tick{});
      },
      [=](const message::instance_gone& m) {
        guarded("ssd", *metrics, *time, [&] { tier->forget_instance(m.serial); });
      },
      [self](const message::stop&) { self->quit(); },
  };
}

}  // namespace kvd
