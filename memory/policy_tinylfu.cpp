#include "memory/policy_tinylfu.hpp"

namespace kvd {

namespace {

// The sketch sees 32 bits, resident or not, so that a block keeps half its fingerprint only.
std::uint32_t seed(std::uint64_t fingerprint) noexcept {
  return static_cast<std::uint32_t>(fingerprint ^ (fingerprint >> 32));
}

}  // namespace

void tinylfu_policy::reserve(std::uint32_t blocks_max, std::uint32_t capacity) {
  if (blocks_max > links_.size()) {
    links_.resize(blocks_max);
    seeds_.resize(blocks_max);
  }
  uses_.reserve(capacity);
}

bool tinylfu_policy::admit(std::uint64_t fingerprint) noexcept {
  uses_.add(seed(fingerprint));
  counted_ = fingerprint;
  has_counted_ = true;
  return order_.empty() ||
         uses_.estimate(seed(fingerprint)) >= uses_.estimate(seeds_[order_.oldest()]);
}

void tinylfu_policy::insert(block_index block, std::uint64_t fingerprint) noexcept {
  if (!has_counted_ || counted_ != fingerprint) uses_.add(seed(fingerprint));
  has_counted_ = false;
  seeds_[block] = seed(fingerprint);
  order_.push_newest(links_, block);
}

void tinylfu_policy::touch(block_index block, std::uint64_t fingerprint) noexcept {
  uses_.add(seed(fingerprint));
  order_.make_newest(links_, block);
}

void tinylfu_policy::remove(block_index block) noexcept {
  order_.erase(links_, block);
}

block_index tinylfu_policy::evict(evictable& may_go) noexcept {
  return evict_oldest(order_, links_, may_go);
}

std::size_t tinylfu_policy::memory_bytes() const noexcept {
  return links_.capacity() * sizeof(block_link) + seeds_.capacity() * sizeof(std::uint32_t) +
         uses_.memory_bytes();
}

}  // namespace kvd
