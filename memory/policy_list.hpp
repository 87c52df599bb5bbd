#pragma once
// Doubly linked lists of block numbers, threaded through one array of links: 8 bytes a block, and
// no allocation after the array is sized. A block is in at most one of the lists of an array.
//
// Owner: an eviction policy, single-threaded.

#include <cassert>
#include <cstdint>
#include <vector>

#include "memory/eviction_policy.hpp"

namespace kvd {

struct block_link {
  block_index newer = no_block;
  block_index older = no_block;
};

using block_links = std::vector<block_link>;

class block_list {
public:
  std::uint32_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  // no_block when empty.
  block_index newest() const noexcept { return newest_; }
  block_index oldest() const noexcept { return oldest_; }

  // REQUIRES: `block` is in no list of `links`.
  void push_newest(block_links& links, block_index block) noexcept {
    assert(block < links.size());
    links[block] = {no_block, newest_};
    if (newest_ != no_block) {
      links[newest_].newer = block;
    } else {
      oldest_ = block;
    }
    newest_ = block;
    ++size_;
  }

  // REQUIRES: `block` is in this list.
  void erase(block_links& links, block_index block) noexcept {
    assert(size_ > 0);
    const auto link = links[block];
    if (link.newer != no_block) {
      links[link.newer].older = link.older;
    } else {
      newest_ = link.older;
    }
    if (link.older != no_block) {
      links[link.older].newer = link.newer;
    } else {
      oldest_ = link.newer;
    }
    --size_;
  }

  // REQUIRES: `block` is in this list.
  void make_newest(block_links& links, block_index block) noexcept {
    if (block == newest_) return;
    erase(links, block);
    push_newest(links, block);
  }

private:
  block_index newest_ = no_block;
  block_index oldest_ = no_block;
  std::uint32_t size_ = 0;
};

// Takes out and returns the oldest block that may go; no_block after one pass. Refused blocks
// become the newest, so that a run of pinned ones is walked once and not by every eviction.
inline block_index evict_oldest(block_list& list, block_links& links, evictable& may_go) noexcept {
  for (auto left = list.size(); left > 0; --left) {
    const auto block = list.oldest();
    if (may_go(block)) {
      list.erase(links, block);
      return block;
    }
    list.make_newest(links, block);
  }
  return no_block;
}

}  // namespace kvd
