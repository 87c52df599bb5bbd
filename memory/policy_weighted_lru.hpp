#pragma once
// The default: LRU in which a block used once ages 1, 4 or 16 times as fast as one used again,
// whichever would have hit most lately. docs/policies.md says why, and what it scores.
//
// How much a second use says about a third depends on the traffic and on the capacity, so it is
// measured: for each weight a shadow replays a sample of the accesses, chosen by fingerprint,
// against a cache scaled down by the same factor (Waldspurger et al., ATC 2017). The weight of the
// shadow with the most hits orders the real blocks. It starts as LRU and leaves a weight only for
// one that has 1 % more hits, so it does no worse than LRU by more than what the sample errs.
//
// Per block: 17.1 bytes; and 150 KiB of shadows whatever the capacity.

#include <array>

#include "memory/policy_ages.hpp"
#include "memory/policy_ghosts.hpp"

namespace kvd {

class weighted_lru_policy final : public eviction_policy {
public:
  std::string_view name() const noexcept override { return "weighted-lru"; }
  void reserve(std::uint32_t blocks_max, std::uint32_t capacity) override;
  bool admit(std::uint64_t fingerprint) noexcept override;
  void insert(block_index block, std::uint64_t fingerprint) noexcept override;
  void touch(block_index block, std::uint64_t fingerprint) noexcept override;
  void remove(block_index block) noexcept override;
  block_index evict(evictable& may_go) noexcept override;
  std::uint32_t resident() const noexcept override { return order_.size(); }
  std::size_t memory_bytes() const noexcept override;
  // How fast a block used once ages, now.
  std::uint32_t weight() const noexcept { return weights[chosen_]; }

  static constexpr std::array<std::uint32_t, 3> weights{1, 4, 16};

private:
  // A cache of fingerprints alone.
  class shadow final : public evictable {
  public:
    void reserve(std::uint32_t capacity);
    // Whether it was in; it is afterwards.
    bool access(std::uint64_t fingerprint, std::uint32_t capacity, std::uint32_t weight) noexcept;
    bool operator()(block_index) noexcept override { return true; }
    std::uint64_t fingerprint(block_index resident) const noexcept override {
      return entries_.fingerprint(resident);
    }
    std::size_t memory_bytes() const noexcept;

    double hits = 0;  // lately: older ones count for less

  private:
    ghost_table entries_;  // an entry's number is its block number
    age_order order_;
  };

  void sample(std::uint64_t fingerprint) noexcept;

  age_order order_;
  std::array<shadow, weights.size()> shadows_;
  std::size_t chosen_ = 0;
  std::uint32_t capacity_ = 0;
  std::uint32_t shadow_blocks_max_ = 0;
  std::uint32_t shadow_blocks_ = 0;  // what fits by now: blocks differ in size, so capacity_ errs
  std::uint32_t sampled_below_ = 0;  // of 2^32
  double keep_ = 1;                  // what a hit still counts one sampled access later
};

}  // namespace kvd
