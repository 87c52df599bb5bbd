#pragma once
// Least recently used goes first. 8 bytes a block: the two links of one list.

#include "memory/policy_list.hpp"

namespace kvd {

class lru_policy final : public eviction_policy {
public:
  std::string_view name() const noexcept override { return "lru"; }
  void reserve(std::uint32_t blocks_max, std::uint32_t capacity) override;
  bool admit(std::uint64_t fingerprint) noexcept override;
  void insert(block_index block, std::uint64_t fingerprint) noexcept override;
  void touch(block_index block, std::uint64_t fingerprint) noexcept override;
  void remove(block_index block) noexcept override;
  block_index evict(evictable& may_go) noexcept override;
  std::uint32_t resident() const noexcept override { return order_.size(); }
  std::size_t memory_bytes() const noexcept override;

private:
  block_links links_;
  block_list order_;
};

}  // namespace kvd
