#include "memory/policy_lru.hpp"

namespace kvd {

void lru_policy::reserve(std::uint32_t blocks_max, std::uint32_t) {
  if (blocks_max > links_.size()) links_.resize(blocks_max);
}

bool lru_policy::admit(std::uint64_t) noexcept {
  return true;
}

void lru_policy::insert(block_index block, std::uint64_t) noexcept {
  order_.push_newest(links_, block);
}

void lru_policy::touch(block_index block, std::uint64_t) noexcept {
  order_.make_newest(links_, block);
}

void lru_policy::remove(block_index block) noexcept {
  order_.erase(links_, block);
}

block_index lru_policy::evict(evictable& may_go) noexcept {
  return evict_oldest(order_, links_, may_go);
}

std::size_t lru_policy::memory_bytes() const noexcept {
  return links_.capacity() * sizeof(block_link);
}

}  // namespace kvd
