#pragma once
// A slab pool over plain memory, and short ways to use it in tests.

#include <cstdlib>
#include <memory>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "memory/slab_pool.hpp"

namespace kvd {

inline constexpr std::uint64_t kib = 1024;
inline constexpr std::uint64_t mib = 1024 * kib;

// A pool over plain memory; every node gets the same number of bytes.
struct pool_over_buffer {
  struct free_memory {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::vector<std::unique_ptr<std::byte, free_memory>> buffers;
  std::unique_ptr<slab_pool> pool;

  explicit pool_over_buffer(std::uint64_t bytes, std::vector<int> nodes = {0},
                            bool blockwise = false, bool claimed = true,
                            std::uint64_t slot_alignment = 512) {
    std::vector<pool_region> regions;
    for (const auto node : nodes) {
      buffers.emplace_back(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
      regions.push_back({node, buffers.back().get(), bytes});
    }
    auto made = slab_pool::create({regions, 0, blockwise, slot_alignment});
    REQUIRE(made.has_value());
    pool = std::move(*made);
    if (!claimed) return;
    for (const auto node : nodes)
      pool->grow(node, bytes);
  }
  slab_pool* operator->() const { return pool.get(); }
};

inline std::vector<slot> take(slab_pool& pool, size_class of, std::size_t count,
                              block_index first_owner, int node = 0) {
  std::vector<slot> out(count, no_slot);
  std::vector<block_index> owners(count);
  for (std::size_t i = 0; i < count; ++i)
    owners[i] = first_owner + static_cast<block_index>(i);
  out.resize(pool.allocate(of, node, out, owners));
  return out;
}

struct all_but final : evictable {
  std::set<block_index> pinned;
  std::uint64_t fingerprint(block_index) const noexcept override {
    return 0;
  }  // pools ask for none
  bool operator()(block_index candidate) noexcept override { return !pinned.contains(candidate); }
};

}  // namespace kvd
