#pragma once
// Which memory of a pool a piece is, and whether it is of the pool at all. Pure; any thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/peer/peer_port.hpp"

namespace kvd {

// The region that holds all of [offset, offset + bytes), or null. Pieces do not span regions.
// REQUIRES: regions as peer_pool says.
inline const peer_region* region_of(std::span<const peer_region> regions, std::uint64_t offset,
                                    std::uint64_t bytes) noexcept {
  const auto after =
      std::upper_bound(regions.begin(), regions.end(), offset,
                       [](std::uint64_t at, const peer_region& r) { return at < r.pool_offset; });
  if (after == regions.begin()) return nullptr;
  const auto& region = *(after - 1);
  const auto inside = offset - region.pool_offset;
  if (inside > region.bytes || bytes > region.bytes - inside) return nullptr;
  return &region;
}

}  // namespace kvd
