#include "actors/engine.hpp"

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>

#include "actors/guarded.hpp"

namespace kvd {

engine_actor::behavior_type engine(engine_actor::stateful_pointer<engine_state> self,
                                   instance_registry* registry, control_metrics* metrics,
                                   const clock* time) {
  // Instances outlive no one here: a strong handle inside one would keep the system from ending.
  const caf::weak_actor_ptr weak(self->ctrl());
  const instance_registry::idle_notice when_idle = [weak](std::uint64_t serial) {
    if (auto strong = weak.lock()) {
      caf::anon_send(caf::actor_cast<engine_actor>(strong), message::instance_idle{serial});
    }
  };
  return {
      [=](const message::register_worker& m) {
        guarded("engine", *metrics, *time,
                [&] { m.answer(registry->register_worker(*m.request, when_idle)); });
      },
      [=](const message::unregister& m) {
        guarded("engine", *metrics, *time, [&] { registry->unregister(m.instance_id, m.answer); });
      },
      [=](const message::session_opened& m) {
        guarded("engine", *metrics, *time,
                [&] { registry->session_opened(m.instance_id, m.token); });
      },
      [=](const message::session_closed& m) {
        guarded("engine", *metrics, *time,
                [&] { registry->session_closed(m.instance_id, m.token); });
      },
      [=](const message::instance_idle& m) {
        guarded("engine", *metrics, *time, [&] { registry->idle(m.serial); });
      },
      [=](const message::cleanup_instances& m) {
        guarded("engine", *metrics, *time, [&] { registry->cleanup(m.instance_id, m.answer); });
      },
      [self](const message::stop&) { self->quit(); },
  };
}

}  // namespace kvd
