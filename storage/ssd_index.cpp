#include "storage/ssd_index.hpp"

#include <cassert>

#include <xxhash.h>

namespace kvd {

std::uint64_t ssd_index::spread(const record_key& key) const noexcept {
  return XXH3_64bits_withSeed(&key, sizeof key, seed_);
}

std::size_t ssd_index::seek(const shard& in, std::uint64_t spread, const record_key& key) noexcept {
  const auto mask = in.slots.size() - 1;
  auto at = home(spread, in.slots.size());
  while (in.slots[at].place.payload_units != 0 && in.slots[at].key != key)
    at = (at + 1) & mask;
  return at;
}

std::optional<record_place> ssd_index::find(const record_key& key) const noexcept {
  const auto where = spread(key);
  const auto& in = shards_[where % shard_count];
  const std::lock_guard lock(in.mutex);
  if (in.slots.empty()) return std::nullopt;
  const auto& found = in.slots[seek(in, where, key)];
  if (found.place.payload_units == 0) return std::nullopt;
  return found.place;
}

void ssd_index::grow(shard& in) noexcept {
  std::vector<slot> old(in.slots.empty() ? first_slots : in.slots.size() * 2);
  old.swap(in.slots);
  for (const auto& moved : old) {
    if (moved.place.payload_units == 0) continue;
    in.slots[seek(in, spread(moved.key), moved.key)] = moved;
  }
  bytes_.fetch_add((in.slots.size() - old.size()) * sizeof(slot), std::memory_order_relaxed);
}

void ssd_index::insert(const record_key& key, const record_place& place) noexcept {
  assert(place.payload_units > 0);
  const auto where = spread(key);
  auto& in = shards_[where % shard_count];
  const std::lock_guard lock(in.mutex);
  if ((in.taken + 1) * 4 > in.slots.size() * 3) grow(in);
  auto& found = in.slots[seek(in, where, key)];
  if (found.place.payload_units != 0) {
    units_.fetch_sub(found.place.record_units, std::memory_order_relaxed);
  } else {
    ++in.taken;
    records_.fetch_add(1, std::memory_order_relaxed);
  }
  units_.fetch_add(place.record_units, std::memory_order_relaxed);
  found = {key, place};
}

bool ssd_index::erase_if(const record_key& key, std::uint32_t segment,
                         std::uint32_t offset) noexcept {
  const auto where = spread(key);
  auto& in = shards_[where % shard_count];
  const std::lock_guard lock(in.mutex);
  if (in.slots.empty()) return false;
  auto hole = seek(in, where, key);
  const auto& place = in.slots[hole].place;
  if (place.payload_units == 0 || place.segment != segment || place.offset != offset) return false;
  units_.fetch_sub(place.record_units, std::memory_order_relaxed);
  records_.fetch_sub(1, std::memory_order_relaxed);
  --in.taken;
  const auto mask = in.slots.size() - 1;
  // Whoever lies behind the hole and would be sought from at or before it moves into it.
  for (auto at = (hole + 1) & mask; in.slots[at].place.payload_units != 0; at = (at + 1) & mask) {
    const auto from = home(spread(in.slots[at].key), in.slots.size());
    if (((at - from) & mask) < ((at - hole) & mask)) continue;
    in.slots[hole] = in.slots[at];
    hole = at;
  }
  in.slots[hole] = {};
  return true;
}

}  // namespace kvd
