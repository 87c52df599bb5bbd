#pragma once
// S3-FIFO (Yang et al., SOSP 2023): a small probation queue, a main queue, and ghosts of what left
// probation. Hits only count (to 3); blocks move when room is needed. Two hits in probation lead
// to the main queue, as published.
//
// Per block: 9 bytes resident and 0.9 ghosts of 24.

#include "memory/policy_ghosts.hpp"
#include "memory/policy_list.hpp"

namespace kvd {

class s3fifo_policy final : public eviction_policy {
public:
  std::string_view name() const noexcept override { return "s3fifo"; }
  void reserve(std::uint32_t blocks_max, std::uint32_t capacity) override;
  bool admit(std::uint64_t fingerprint) noexcept override;
  void insert(block_index block, std::uint64_t fingerprint) noexcept override;
  void touch(block_index block, std::uint64_t fingerprint) noexcept override;
  void remove(block_index block) noexcept override;
  block_index evict(evictable& may_go) noexcept override;
  std::uint32_t resident() const noexcept override { return probation_.size() + main_.size(); }
  std::size_t memory_bytes() const noexcept override;

private:
  struct use {
    std::uint8_t hits : 7;
    std::uint8_t in_main : 1;
  };

  block_index evict_probation(evictable& may_go) noexcept;
  block_index evict_main(evictable& may_go) noexcept;

  block_links links_;
  std::vector<use> uses_;
  block_list probation_;
  block_list main_;
  ghost_table ghosts_;  // only the first queue is used
  std::uint32_t probation_max_ = 1;
  std::uint32_t main_max_ = 0;
};

}  // namespace kvd
