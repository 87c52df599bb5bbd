#include "actors/cache.hpp"

#include "actors/guarded.hpp"
#include "core/limits.hpp"

namespace kvd {

namespace {

void trim_slice(cache_actor::stateful_pointer<cache_state> self, const cache_parts& parts) {
  const auto gone = parts.store->trim(blocks_per_trim);
  // More to do: let the other messages go first.
  if (gone == blocks_per_trim && parts.store->above_low_watermark()) {
    self->send(self, message::trim{});
  }
}

block_store::cleanup drop_everything(const cache_parts& parts) {
  parts.leases->expire();
  const auto total = parts.store->drop_resident();
  log::info("cache", "memory cleanup: evicted_blocks={} evicted_bytes={} still_referenced={}",
            total.evicted_blocks, total.evicted_bytes, total.still_referenced_blocks);
  return total;
}

void upkeep(sharing_watch& sharing, const cache_parts& parts) {
  parts.leases->expire();
  parts.store->drop_unsealed(limits::unsealed_age_max);
  parts.saves->tick();
  sharing.look(*parts.instances);
}

}  // namespace

cache_actor::behavior_type cache(cache_actor::stateful_pointer<cache_state> self,
                                 cache_parts parts) {
  self->delayed_send(self, upkeep_period, message::tick{});
  return {
      [=](const message::trim&) {
        guarded("cache", *parts.metrics, *parts.time, [&] { trim_slice(self, parts); });
      },
      [=](const message::tick&) {
        guarded("cache", *parts.metrics, *parts.time, [&] { upkeep(self->state.sharing, parts); });
        self->delayed_send(self, upkeep_period, message::tick{});
      },
      [=](const message::cleanup_memory& m) {
        guarded("cache", *parts.metrics, *parts.time, [&] { m.answer(drop_everything(parts)); });
      },
      [self](const message::stop&) { self->quit(); },
  };
}

}  // namespace kvd
