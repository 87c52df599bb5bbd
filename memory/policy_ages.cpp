#include "memory/policy_ages.hpp"

#include <algorithm>
#include <bit>

namespace kvd {

namespace {

// 512 to 1023 ticks a capacity. A block used once is at most one capacity old, one used again at
// most weight_max times that, so ages stay below half of the 32,768 ticks that a stamp can tell
// apart.
constexpr int tick_bits_per_capacity = 10;
constexpr std::uint32_t tick_mask = (1U << 15) - 1;
// Ghosts remembered for each block of capacity.
constexpr std::size_t ghosts_per_block = 3;

}  // namespace

void age_order::reserve(std::uint32_t blocks_max, std::uint32_t capacity) {
  if (blocks_max > links_.size()) {
    links_.resize(blocks_max);
    stamps_.resize(blocks_max, stamp{0, 0});
  }
  tick_shift_ =
      std::max(tick_shift_, static_cast<int>(std::bit_width(capacity)) - tick_bits_per_capacity);
  ghosts_.reserve(ghosts_per_block * capacity);
}

std::uint32_t age_order::age(block_index block) const noexcept {
  return (static_cast<std::uint32_t>(inserts_ >> tick_shift_) - stamps_[block].tick) & tick_mask;
}

void age_order::place(block_index block, bool again) noexcept {
  const auto tick = static_cast<std::uint32_t>(inserts_ >> tick_shift_) & tick_mask;
  stamps_[block].tick = static_cast<std::uint16_t>(tick) & tick_mask;
  stamps_[block].again = again ? 1 : 0;
  (again ? again_ : once_).push_newest(links_, block);
}

void age_order::insert(block_index block, std::uint64_t fingerprint) noexcept {
  ++inserts_;
  place(block, ghosts_.has(fingerprint));
}

void age_order::touch(block_index block) noexcept {
  remove(block);
  place(block, true);
}

void age_order::remove(block_index block) noexcept {
  (stamps_[block].again != 0 ? again_ : once_).erase(links_, block);
}

bool age_order::once_goes(std::uint32_t weight) const noexcept {
  return age(once_.oldest()) * weight >= age(again_.oldest());
}

block_index age_order::evict(evictable& may_go, std::uint32_t weight) noexcept {
  auto once_left = once_.size();
  auto again_left = again_.size();
  while (once_left + again_left > 0) {
    const auto once = again_left == 0 || (once_left > 0 && once_goes(weight));
    const auto block = (once ? once_ : again_).oldest();
    remove(block);
    if (may_go(block)) {
      ghosts_.add(may_go.fingerprint(block));
      return block;
    }
    // Somebody holds it, so it is in use now; this also keeps the next evictions from meeting it.
    place(block, !once);
    --(once ? once_left : again_left);
  }
  return no_block;
}

std::size_t age_order::memory_bytes() const noexcept {
  return links_.capacity() * sizeof(block_link) + stamps_.capacity() * sizeof(stamp) +
         ghosts_.memory_bytes();
}

}  // namespace kvd
