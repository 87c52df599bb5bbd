#include "memory/whole_claims.hpp"

#include <algorithm>
#include <numeric>

namespace kvd {

whole_claims claim_whole(block_store& store, scope_id in, hash_list hashes,
                         std::span<const std::uint32_t> positions) {
  const auto parts = static_cast<std::uint32_t>(store.scope_of(in).parts.size());
  whole_claims out;
  std::vector<std::vector<part_claim>> claims(hashes.size());
  std::uint32_t became_present = 0;
  std::vector<std::uint32_t> left(positions.begin(), positions.end());
  for (std::uint32_t part = 0; part < parts && !left.empty(); ++part) {
    std::vector<part_claim> got;
    const auto counts = store.claim({.in = in,
                                     .part = part,
                                     .numa_node = -1,
                                     .origin = 0,
                                     .hashes = hashes,
                                     .positions = left,
                                     .fetch = true},
                                    got, out.busy);
    became_present += counts.present;
    left.clear();
    for (const auto& claim : got) {
      claims[claim.position].push_back(claim);
      if (!claim.partial) left.push_back(claim.position);
    }
  }
  const std::vector<std::uint32_t> copied_by_others = out.busy;
  for (const auto position : positions) {
    auto& mine = claims[position];
    if (mine.size() == parts && !mine.back().partial) {
      out.claimed.push_back({position, std::move(mine)});
      continue;
    }
    // In RAM meanwhile, or being saved part by part, or without room: what is claimed goes back.
    store.abandon(mine);
    const bool listed = std::find(copied_by_others.begin(), copied_by_others.end(), position) !=
                        copied_by_others.end();
    if (became_present > 0 && !listed) out.busy.push_back(position);
  }
  return out;
}

void commit_whole(block_store& store, scope_id in, std::span<const part_claim> parts) {
  store.pin_claimed(parts.front());
  std::vector<std::uint32_t> cells;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    cells.resize(store.scope_of(in).parts[i].cells);
    std::iota(cells.begin(), cells.end(), 0U);
    store.commit(parts.subspan(i, 1), cells);
  }
}

}  // namespace kvd
