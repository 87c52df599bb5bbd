#pragma once
// ARC (Megiddo and Modha, FAST 2003): `once_` holds blocks seen once, `again_` those seen again,
// each by recency; ghosts of both say which one is too short, and `target_` moves between them.
//
// Per block: 9 bytes resident and up to one ghost of 24.

#include "memory/policy_ghosts.hpp"
#include "memory/policy_list.hpp"

namespace kvd {

class arc_policy final : public eviction_policy {
public:
  std::string_view name() const noexcept override { return "arc"; }
  void reserve(std::uint32_t blocks_max, std::uint32_t capacity) override;
  // Always true. The victim depends on who asks for room, so the last one asked about is noted.
  bool admit(std::uint64_t fingerprint) noexcept override;
  void insert(block_index block, std::uint64_t fingerprint) noexcept override;
  void touch(block_index block, std::uint64_t fingerprint) noexcept override;
  void remove(block_index block) noexcept override;
  block_index evict(evictable& may_go) noexcept override;
  std::uint32_t resident() const noexcept override { return once_.size() + again_.size(); }
  std::size_t memory_bytes() const noexcept override;

private:
  // Where the block that asks for room was last seen.
  enum class origin : std::uint8_t { unknown, once_ghost, again_ghost };

  origin adapt(std::uint64_t fingerprint) noexcept;
  void trim_for_unknown() noexcept;
  block_index evict_once(evictable& may_go, bool remember) noexcept;
  block_index evict_again(evictable& may_go) noexcept;

  block_links links_;
  std::vector<std::uint8_t> seen_again_;  // which list a resident block is in
  block_list once_;
  block_list again_;
  ghost_table ghosts_;  // first: gone from once_, second: gone from again_
  std::uint32_t capacity_ = 0;
  double target_ = 0;  // wanted size of once_, 0 to capacity_
  // The block that asks for room, from admit to insert; the target moves for it once.
  std::uint64_t asking_ = 0;
  bool asks_ = false;
  bool adapted_ = false;
  origin asking_origin_ = origin::unknown;
};

}  // namespace kvd
