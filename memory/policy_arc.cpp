#include "memory/policy_arc.hpp"

#include <algorithm>

namespace kvd {

void arc_policy::reserve(std::uint32_t blocks_max, std::uint32_t capacity) {
  if (blocks_max > links_.size()) {
    links_.resize(blocks_max);
    seen_again_.resize(blocks_max, 0);
  }
  capacity_ = std::max(capacity_, capacity);
  // One more than the paper's bound: a victim is remembered before the asking ghost is forgotten.
  ghosts_.reserve(capacity_ + 1);
}

bool arc_policy::admit(std::uint64_t fingerprint) noexcept {
  asking_ = fingerprint;
  asks_ = true;
  return true;
}

// Moves the target for a block that comes back, and says where it was last seen.
arc_policy::origin arc_policy::adapt(std::uint64_t fingerprint) noexcept {
  const auto ghost = ghosts_.find(fingerprint);
  if (ghost == no_ghost) return origin::unknown;
  const auto once_ghosts = static_cast<double>(ghosts_.size(ghost_queue::first));
  const auto again_ghosts = static_cast<double>(ghosts_.size(ghost_queue::second));
  if (ghosts_.queue_of(ghost) == ghost_queue::first) {
    const auto step = std::max(1.0, again_ghosts / std::max(1.0, once_ghosts));
    target_ = std::min(static_cast<double>(capacity_), target_ + step);
    return origin::once_ghost;
  }
  const auto step = std::max(1.0, once_ghosts / std::max(1.0, again_ghosts));
  target_ = std::max(0.0, target_ - step);
  return origin::again_ghost;
}

void arc_policy::insert(block_index block, std::uint64_t fingerprint) noexcept {
  if (!adapted_ || asking_ != fingerprint) adapt(fingerprint);
  asks_ = false;
  adapted_ = false;
  const auto ghost = ghosts_.find(fingerprint);
  const auto again = ghost != no_ghost;
  if (again) ghosts_.erase(ghost);
  seen_again_[block] = again ? 1 : 0;
  (again ? again_ : once_).push_newest(links_, block);
}

void arc_policy::touch(block_index block, std::uint64_t) noexcept {
  if (seen_again_[block] != 0) {
    again_.make_newest(links_, block);
    return;
  }
  once_.erase(links_, block);
  seen_again_[block] = 1;
  again_.push_newest(links_, block);
}

void arc_policy::remove(block_index block) noexcept {
  (seen_again_[block] != 0 ? again_ : once_).erase(links_, block);
}

// Case IV of the paper: an unknown block makes the directory one longer, so the oldest ghost goes.
void arc_policy::trim_for_unknown() noexcept {
  const auto once_known = once_.size() + ghosts_.size(ghost_queue::first);
  if (once_known >= capacity_) {
    if (ghosts_.size(ghost_queue::first) > 0) ghosts_.drop_oldest(ghost_queue::first);
    return;
  }
  const auto known = once_known + again_.size() + ghosts_.size(ghost_queue::second);
  if (known >= 2 * std::uint64_t{capacity_} && ghosts_.size(ghost_queue::second) > 0) {
    ghosts_.drop_oldest(ghost_queue::second);
  }
}

block_index arc_policy::evict_once(evictable& may_go, bool remember) noexcept {
  const auto block = evict_oldest(once_, links_, may_go);
  if (block != no_block && remember) {
    ghosts_.push(ghost_queue::first, may_go.fingerprint(block));
  }
  return block;
}

block_index arc_policy::evict_again(evictable& may_go) noexcept {
  const auto block = evict_oldest(again_, links_, may_go);
  if (block != no_block) ghosts_.push(ghost_queue::second, may_go.fingerprint(block));
  return block;
}

block_index arc_policy::evict(evictable& may_go) noexcept {
  if (asks_ && !adapted_) {
    asking_origin_ = adapt(asking_);
    adapted_ = true;
  }
  const auto from = asks_ ? asking_origin_ : origin::unknown;
  auto remember = true;
  if (from == origin::unknown) {
    remember = once_.size() < capacity_;
    trim_for_unknown();
  }
  const auto once_size = static_cast<double>(once_.size());
  const auto once_first =
      !once_.empty() &&
      (!remember || again_.empty() || once_size > target_ ||
       (from == origin::again_ghost && once_.size() == static_cast<std::uint32_t>(target_)));
  const auto first = once_first ? evict_once(may_go, remember) : evict_again(may_go);
  if (first != no_block) return first;
  return once_first ? evict_again(may_go) : evict_once(may_go, remember);
}

std::size_t arc_policy::memory_bytes() const noexcept {
  return links_.capacity() * sizeof(block_link) + seen_again_.capacity() + ghosts_.memory_bytes();
}

}  // namespace kvd
