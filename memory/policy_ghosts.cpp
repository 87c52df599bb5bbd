#include "memory/policy_ghosts.hpp"

#include <bit>
#include <cassert>

namespace kvd {

namespace {

constexpr std::uint32_t queue_bit = std::uint32_t{1} << 31;
constexpr std::uint32_t index_mask = queue_bit - 1;

}  // namespace

void ghost_table::reserve(std::uint32_t capacity) {
  const auto old_size = entries_.size();
  if (capacity <= old_size) return;
  entries_.resize(capacity);
  table_.assign(std::bit_ceil(std::size_t{capacity} * 2), no_ghost);
  for (auto& ends : ends_) {
    for (auto ghost = ends.newest; ghost != no_ghost; ghost = entries_[ghost].older)
      put(ghost);
  }
  for (auto ghost = old_size; ghost < capacity; ++ghost) {
    entries_[ghost].older = free_;
    free_ = static_cast<ghost_index>(ghost);
  }
}

std::size_t ghost_table::home(std::uint64_t fingerprint) const noexcept {
  // Fibonacci hashing: fingerprints may be weak in their low bits.
  return static_cast<std::size_t>((fingerprint * 0x9E3779B97F4A7C15ULL) >> 32) &
         (table_.size() - 1);
}

ghost_index ghost_table::find(std::uint64_t fingerprint) const noexcept {
  if (table_.empty()) return no_ghost;
  for (auto slot = home(fingerprint);; slot = (slot + 1) & (table_.size() - 1)) {
    const auto ghost = table_[slot];
    if (ghost == no_ghost || entries_[ghost].fingerprint == fingerprint) return ghost;
  }
}

ghost_queue ghost_table::queue_of(ghost_index ghost) const noexcept {
  return (entries_[ghost].newer & queue_bit) != 0 ? ghost_queue::second : ghost_queue::first;
}

ghost_index ghost_table::newer_of(ghost_index ghost) const noexcept {
  const auto newer = entries_[ghost].newer & index_mask;
  return newer == index_mask ? no_ghost : newer;
}

void ghost_table::set_newer(ghost_index ghost, ghost_index newer) noexcept {
  auto& field = entries_[ghost].newer;
  field = (field & queue_bit) | (newer & index_mask);
}

void ghost_table::put(ghost_index ghost) noexcept {
  auto slot = home(entries_[ghost].fingerprint);
  while (table_[slot] != no_ghost)
    slot = (slot + 1) & (table_.size() - 1);
  table_[slot] = ghost;
}

void ghost_table::take(ghost_index ghost) noexcept {
  const auto mask = table_.size() - 1;
  auto hole = home(entries_[ghost].fingerprint);
  while (table_[hole] != ghost)
    hole = (hole + 1) & mask;
  // Shift back what probed past the hole, so that the table needs no tombstones.
  for (auto slot = (hole + 1) & mask; table_[slot] != no_ghost; slot = (slot + 1) & mask) {
    const auto wanted = home(entries_[table_[slot]].fingerprint);
    if (((slot - wanted) & mask) >= ((slot - hole) & mask)) {
      table_[hole] = table_[slot];
      hole = slot;
    }
  }
  table_[hole] = no_ghost;
}

ghost_index ghost_table::push(ghost_queue queue, std::uint64_t fingerprint) noexcept {
  if (entries_.empty()) return no_ghost;
  if (free_ == no_ghost) {
    drop_oldest(size(ghost_queue::first) >= size(ghost_queue::second) ? ghost_queue::first
                                                                      : ghost_queue::second);
  }
  const auto ghost = free_;
  free_ = entries_[ghost].older;
  auto& ends = ends_[at(queue)];
  entries_[ghost] = {fingerprint, queue == ghost_queue::second ? queue_bit : 0, ends.newest};
  set_newer(ghost, no_ghost);
  if (ends.newest != no_ghost) {
    set_newer(ends.newest, ghost);
  } else {
    ends.oldest = ghost;
  }
  ends.newest = ghost;
  ++ends.size;
  put(ghost);
  return ghost;
}

void ghost_table::unlink(ghost_index ghost) noexcept {
  auto& ends = ends_[at(queue_of(ghost))];
  const auto newer = newer_of(ghost);
  const auto older = entries_[ghost].older;
  if (newer != no_ghost) {
    entries_[newer].older = older;
  } else {
    ends.newest = older;
  }
  if (older != no_ghost) {
    set_newer(older, newer);
  } else {
    ends.oldest = newer;
  }
  --ends.size;
}

void ghost_table::erase(ghost_index ghost) noexcept {
  take(ghost);
  unlink(ghost);
  entries_[ghost].older = free_;
  free_ = ghost;
}

void ghost_table::drop_oldest(ghost_queue queue) noexcept {
  assert(size(queue) > 0);
  erase(ends_[at(queue)].oldest);
}

std::size_t ghost_table::memory_bytes() const noexcept {
  return entries_.capacity() * sizeof(entry) + table_.capacity() * sizeof(ghost_index);
}

}  // namespace kvd
