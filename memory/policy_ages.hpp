#pragma once
// Blocks in two lists by recency, those used once and those used again, of which the older goes:
// a block used once counts as `weight` times as old as it is. With weight 1 that is LRU; a larger
// one gives blocks that came back the more time the larger it is.
//
// A block that comes back soon after it was evicted counts as used again; ghost tags tell. Age is
// counted in inserts, in steps of a thousandth of the capacity or so: what ages a block is that
// others come, so a weight of 16 needs 15 bits and no more.
//
// Per block: 17.1 bytes, 8 of links, 2 of stamp, and three ghost tags of 2.4.
// Owner: an eviction policy, single-threaded. Only reserve allocates.

#include "memory/policy_list.hpp"
#include "memory/policy_tags.hpp"

namespace kvd {

class age_order {
public:
  void reserve(std::uint32_t blocks_max, std::uint32_t capacity);
  // REQUIRES: `block` is not in.
  void insert(block_index block, std::uint64_t fingerprint) noexcept;
  // REQUIRES: `block` is in.
  void touch(block_index block) noexcept;
  // REQUIRES: `block` is in.
  void remove(block_index block) noexcept;
  // no_block when none may go. Refused ones become the most recent of their list.
  // REQUIRES: 1 <= weight <= weight_max.
  block_index evict(evictable& may_go, std::uint32_t weight) noexcept;
  std::uint32_t size() const noexcept { return once_.size() + again_.size(); }
  std::size_t memory_bytes() const noexcept;

  static constexpr std::uint32_t weight_max = 16;

private:
  struct stamp {
    std::uint16_t tick : 15;
    std::uint16_t again : 1;  // which list the block is in
  };

  std::uint32_t age(block_index block) const noexcept;
  bool once_goes(std::uint32_t weight) const noexcept;
  void place(block_index block, bool again) noexcept;

  block_links links_;
  std::vector<stamp> stamps_;
  block_list once_;
  block_list again_;
  ghost_tags ghosts_;
  std::uint64_t inserts_ = 0;
  int tick_shift_ = 0;  // a tick is 2^tick_shift_ inserts
};

}  // namespace kvd
