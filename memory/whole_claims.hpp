#pragma once
// Claims of whole blocks, by tiers that bring blocks up from elsewhere.
//
// Threads: any, but two that claim the same blocks in another order may each find the other's
// parts busy, so a tier claims from one thread.

#include <cstdint>
#include <span>
#include <vector>

#include "memory/block_store.hpp"

namespace kvd {

struct whole_claims {
  struct block {
    std::uint32_t position = 0;     // in the list that was claimed
    std::vector<part_claim> parts;  // all of them, in order
  };
  std::vector<block> claimed;
  // Others are copying these just now, or have just made them present: look again later.
  std::vector<std::uint32_t> busy;
};

// Claims those of the positions that are neither present nor being copied, as far as there is room.
whole_claims claim_whole(block_store& store, scope_id in, hash_list hashes,
                         std::span<const std::uint32_t> positions);

// Every part was copied: commits it, and keeps one pin, which is the caller's.
void commit_whole(block_store& store, scope_id in, std::span<const part_claim> parts);

}  // namespace kvd
