#pragma once
// LRU behind a TinyLFU gate (Einziger, Friedman, Manes 2017): when room is short, a new block gets
// in only if it was seen at least as often lately as the block that would go. This is PegaFlow's
// --enable-lfu-admission with its flaws mended: misses count as uses too, and it is asked only
// when room is short, leaf first and up to the first block let in, so that it leaves no hole in a
// prefix. Pinned blocks found on the way become recent, so the block it compares with may go.
//
// 12 bytes a block (links and half a fingerprint), and 4 to 8 of sketch.

#include "memory/policy_list.hpp"
#include "memory/policy_sketch.hpp"

namespace kvd {

class tinylfu_policy final : public eviction_policy {
public:
  std::string_view name() const noexcept override { return "tinylfu"; }
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
  std::vector<std::uint32_t> seeds_;  // what the sketch is asked with, by block
  use_sketch uses_;
  std::uint64_t counted_ = 0;  // admit counted this one already
  bool has_counted_ = false;
};

}  // namespace kvd
