#include "actors/metaserver.hpp"

#include <fmt/ranges.h>

#include "actors/guarded.hpp"

namespace kvd {

namespace {

using metaserver_self = metaserver_actor::stateful_pointer<metaserver_state>;

void run_slice(metaserver_self self, const metaserver_parts& parts) {
  // Through the mailbox, so that other messages get their turn between two slices.
  self->state.slicing = parts.store->upkeep();
  if (self->state.slicing) self->send(self, message::slice{});
}

void tick_directory(metaserver_self self, const metaserver_parts& parts) {
  const auto now = parts.time->now();
  if (now >= self->state.next_sweep) {
    parts.store->begin_sweep();
    self->state.next_sweep = now + parts.sweep_interval;
  }
  if (!self->state.slicing) run_slice(self, parts);
}

result<purged_nodes> purge_nodes(const metaserver_parts& parts) {
  auto outcome = parts.store->purge_stale();
  if (outcome) {
    log::info("metaserver", "purged {} stale nodes with {} blocks: {}", outcome->nodes.size(),
              outcome->owners, fmt::join(outcome->nodes, ", "));
  }
  return outcome;
}

}  // namespace

metaserver_actor::behavior_type keep_directory(metaserver_self self, metaserver_parts parts) {
  self->state.next_sweep = parts.time->now() + parts.sweep_interval;
  self->delayed_send(self, directory_tick, message::tick{});
  return {
      [=](const message::tick&) {
        guarded("metaserver", parts.metrics->control, *parts.time,
                [&] { tick_directory(self, parts); });
        self->delayed_send(self, directory_tick, message::tick{});
      },
      [=](const message::slice&) {
        // Whatever becomes of this slice, the next tick may begin another.
        self->state.slicing = false;
        guarded("metaserver", parts.metrics->control, *parts.time, [&] { run_slice(self, parts); });
      },
      [=](const message::purge_nodes& m) {
        guarded("metaserver", parts.metrics->control, *parts.time,
                [&] { m.answer(purge_nodes(parts)); });
      },
      [self](const message::stop&) { self->quit(); },
  };
}

}  // namespace kvd
