#include "memory/policy_s3fifo.hpp"

#include <algorithm>

namespace kvd {

namespace {

constexpr std::uint8_t hits_max = 3;
constexpr std::uint8_t hits_to_main = 2;
constexpr std::uint32_t probation_share = 10;  // one in ten

}  // namespace

void s3fifo_policy::reserve(std::uint32_t blocks_max, std::uint32_t capacity) {
  if (blocks_max > links_.size()) {
    links_.resize(blocks_max);
    uses_.resize(blocks_max, use{0, 0});
  }
  if (capacity <= probation_max_ + main_max_ && main_max_ > 0) return;
  probation_max_ = std::max(1U, capacity / probation_share);
  main_max_ = capacity > probation_max_ ? capacity - probation_max_ : 0;
  ghosts_.reserve(std::max(1U, main_max_));
}

bool s3fifo_policy::admit(std::uint64_t) noexcept {
  return true;
}

void s3fifo_policy::insert(block_index block, std::uint64_t fingerprint) noexcept {
  const auto ghost = ghosts_.find(fingerprint);
  const auto known = ghost != no_ghost;
  if (known) ghosts_.erase(ghost);
  uses_[block].hits = 0;
  uses_[block].in_main = known ? 1 : 0;
  (known ? main_ : probation_).push_newest(links_, block);
}

void s3fifo_policy::touch(block_index block, std::uint64_t) noexcept {
  if (uses_[block].hits < hits_max) ++uses_[block].hits;
}

void s3fifo_policy::remove(block_index block) noexcept {
  (uses_[block].in_main != 0 ? main_ : probation_).erase(links_, block);
}

block_index s3fifo_policy::evict_probation(evictable& may_go) noexcept {
  for (auto left = probation_.size(); left > 0; --left) {
    const auto block = probation_.oldest();
    if (uses_[block].hits >= hits_to_main && main_max_ > 0) {
      probation_.erase(links_, block);
      uses_[block] = {0, 1};
      main_.push_newest(links_, block);
      if (main_.size() <= main_max_) continue;
      const auto gone = evict_main(may_go);
      if (gone != no_block) return gone;
    } else if (may_go(block)) {
      probation_.erase(links_, block);
      ghosts_.push(ghost_queue::first, may_go.fingerprint(block));
      return block;
    } else {
      probation_.make_newest(links_, block);
    }
  }
  return no_block;
}

block_index s3fifo_policy::evict_main(evictable& may_go) noexcept {
  // Every block is passed hits_max times at most before it is asked for.
  for (auto left = (hits_max + std::uint64_t{1}) * main_.size(); left > 0; --left) {
    const auto block = main_.oldest();
    if (uses_[block].hits > 0) {
      --uses_[block].hits;
    } else if (may_go(block)) {
      main_.erase(links_, block);
      return block;
    }
    main_.make_newest(links_, block);
  }
  return no_block;
}

block_index s3fifo_policy::evict(evictable& may_go) noexcept {
  const auto probation_first = probation_.size() > probation_max_ || main_.empty() ||
                               (probation_.size() >= probation_max_ && main_.size() <= main_max_);
  const auto first = probation_first ? evict_probation(may_go) : evict_main(may_go);
  if (first != no_block) return first;
  return probation_first ? evict_main(may_go) : evict_probation(may_go);
}

std::size_t s3fifo_policy::memory_bytes() const noexcept {
  return links_.capacity() * sizeof(block_link) + uses_.capacity() * sizeof(use) +
         ghosts_.memory_bytes();
}

}  // namespace kvd
