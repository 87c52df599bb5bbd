#pragma once
// A block store over a small pool of plain memory, with a fake clock.

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/clock.hpp"
#include "core/random.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"
#include "memory/lease_table.hpp"

namespace kvd::test {

// 4096-aligned memory of a fake pool.
class pool_memory {
public:
  explicit pool_memory(std::size_t bytes)
      : at_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))) {}
  ~pool_memory() { std::free(at_); }
  pool_memory(const pool_memory&) = delete;
  pool_memory& operator=(const pool_memory&) = delete;
  std::byte* get() const { return at_; }

private:
  std::byte* at_;
};

// Hashes as requests carry them: owned strings and pointers to them.
class hashes {
public:
  hashes() = default;
  hashes(int first, int count) {
    for (int i = 0; i < count; ++i)
      add(first + i);
  }
  void add(int id) {
    auto text = std::make_unique<std::string>(32, '\0');
    *text = "block-" + std::to_string(id);
    text->resize(32, 'x');
    pointers_.push_back(text.get());
    owned_.push_back(std::move(text));
  }
  hash_list list() const { return pointers_; }

private:
  std::vector<std::unique_ptr<std::string>> owned_;
  std::vector<const std::string*> pointers_;
};

inline std::vector<std::uint32_t> all_positions(const hashes& of) {
  std::vector<std::uint32_t> positions(of.list().size());
  for (std::uint32_t i = 0; i < positions.size(); ++i)
    positions[i] = i;
  return positions;
}

// `parts` parts of `part_bytes` each, one cell a part.
inline group_layout simple_layout(std::uint64_t part_bytes, std::uint32_t parts,
                                  std::uint64_t fingerprint) {
  group_layout layout;
  layout.parts.assign(parts, part_layout{part_bytes, 1});
  layout.block_bytes = part_bytes * parts;
  layout.slots = parts;
  layout.fingerprint = {fingerprint, fingerprint};
  return layout;
}

struct store_fixture {
  explicit store_fixture(std::size_t pool_bytes = 1 << 20, std::string_view policy = "lru",
                         bool check_admission = false, std::uint32_t fetch_reserve = 0,
                         std::uint64_t slot_alignment = 512)
      : memory(pool_bytes) {
    const pool_region region{0, memory.get(), pool_bytes};
    pool = *slab_pool::create({.regions = std::span(&region, 1),
                               .hint_value_bytes = 0,
                               .blockwise = false,
                               .slot_alignment = slot_alignment});
    pool->grow(0, pool_bytes);
    store = std::make_unique<block_store>(
        block_store::options{.records_max = static_cast<std::uint32_t>(pool_bytes / 512),
                             .hash_seed = 7,
                             .check_admission = check_admission,
                             .high_watermark = 985 - fetch_reserve,
                             .low_watermark = 970 - fetch_reserve,
                             .fetch_reserve = fetch_reserve},
        *pool, *make_eviction_policy(policy), time, metrics);
    leases =
        std::make_unique<lease_table>(*store, time, random, metrics, std::chrono::seconds(600));
  }

  // Saves every part of the blocks that can be had; returns how many parts were claimed.
  std::size_t save(scope_id in, const hashes& which) {
    std::size_t claimed = 0;
    const auto parts = store->scope_of(in).parts.size();
    for (std::uint32_t part = 0; part < parts; ++part)
      claimed += save_part(in, part, which);
    return claimed;
  }
  std::size_t save_part(scope_id in, std::uint32_t part, const hashes& which) {
    auto claims = claim(in, part, which);
    const std::uint32_t cells[] = {0};
    store->commit(claims, cells);
    return claims.size();
  }
  std::vector<part_claim> claim(scope_id in, std::uint32_t part, const hashes& which) {
    std::vector<part_claim> claims;
    busy.clear();
    const auto positions = all_positions(which);
    counts = store->claim({.in = in,
                           .part = part,
                           .numa_node = -1,
                           .origin = 1,
                           .hashes = which.list(),
                           .positions = positions},
                          claims, busy);
    return claims;
  }
  // Leading hits, with their pins given back.
  std::size_t hits(scope_id in, const hashes& which) {
    std::vector<block_index> pinned;
    const auto count = store->pin_prefix(in, which.list(), pinned);
    store->unpin(pinned);
    return count;
  }

  pool_memory memory;
  fake_clock time;
  seeded_random random{1};
  store_metrics metrics;
  std::unique_ptr<slab_pool> pool;
  std::unique_ptr<block_store> store;
  std::unique_ptr<lease_table> leases;
  std::vector<std::uint32_t> busy;
  claim_counts counts;
};

}  // namespace kvd::test
