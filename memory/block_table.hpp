#pragma once
// The block index: from (scope, hash) to a block record, for any thread, without a hop.
//
// Invariants
//  1. A record is in exactly one chain of the shard its key hashes to, or it is free, or detached.
//  2. key, state, generation, `parts` and `parts_filled` change only under the shard's lock.
//  3. `pins` rises from 0 only under the shard's lock; whoever holds a pin may add pins without it.
//  4. A sealed or detached record with a pin keeps its slots; one without may lose them.
//  5. Record and node numbers are handed out low first, so arrays indexed by them stay dense.
//
// Threads: any; the caller locks the shard it works in. Memory: 104 bytes a block and 2 to 4 for
// its bucket, plus 12 bytes a part for its slot.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/limits.hpp"
#include "memory/eviction_policy.hpp"
#include "memory/reserved_array.hpp"
#include "memory/slab_pool.hpp"

namespace kvd {

// (namespace, cache group, layout fingerprint): only blocks of one scope are interchangeable.
using scope_id = std::uint32_t;
using part_index = std::uint32_t;
inline constexpr part_index no_part = 0;  // node 0 is never handed out
inline constexpr size_class any_class = static_cast<size_class>(~0U);

enum class block_state : std::uint8_t { free, filling, sealed, detached };
enum class part_state : std::uint8_t { copying, partial, filled };

// One part of one block: a slot and how far it is filled. Nodes of a block form a list.
struct part_node {
  slot place;
  part_index next;
  std::uint16_t part;
  part_state state;
};
static_assert(sizeof(part_node) == 12);

struct block_record {
  std::atomic<std::uint64_t> key_hash;
  std::array<char, limits::hash_bytes_max> hash;
  scope_id scope;
  block_index next;  // in its chain, or in the free list
  std::atomic<std::uint32_t> pins;
  part_index parts;                       // head of the list of nodes
  std::uint32_t stamp_seconds;            // filling: when created; sealed: when sealed
  std::atomic<std::uint32_t> generation;  // rises when the record ends
  std::uint32_t origin;                   // instance that saved it first (its serial)
  std::uint16_t parts_filled;
  std::uint8_t hash_size;
  std::atomic<block_state> state;
};
static_assert(sizeof(block_record) <= 104);

class block_table {
public:
  static constexpr std::size_t shard_count = 64;

  // `records_max` bounds blocks and, separately, parts. `seed` keeps chains unpredictable.
  block_table(std::uint32_t records_max, std::uint64_t seed);

  std::uint64_t hash_of(scope_id scope, std::string_view hash) const noexcept;
  std::mutex& lock_of(std::uint64_t key_hash) const noexcept { return shard_of(key_hash).mutex; }
  // Asks for the cache line of the chain's head ahead of find(); no lock needed.
  void prefetch(std::uint64_t key_hash) const noexcept;

  // REQUIRES for the next four: the shard's lock is held.
  block_index find(std::uint64_t key_hash, scope_id scope, std::string_view hash) const noexcept;
  // no_block when the table is full. REQUIRES: not present; hash.size() <= limits::hash_bytes_max.
  block_index create(std::uint64_t key_hash, scope_id scope, std::string_view hash) noexcept;
  void unlink(std::uint64_t key_hash, block_index block) noexcept;
  // no_part when the table is full.
  part_index add_part(block_index block, std::uint16_t part) noexcept;

  // REQUIRES: unlinked, no nodes, no pins.
  void free_record(block_index block) noexcept;
  void free_part(part_index node) noexcept;

  block_record& operator[](block_index block) noexcept { return records_[block]; }
  const block_record& operator[](block_index block) const noexcept { return records_[block]; }
  part_node& node(part_index at) noexcept { return nodes_[at]; }
  const part_node& node(part_index at) const noexcept { return nodes_[at]; }
  std::string_view key_of(block_index block) const noexcept;
  // The key's hash, kept so that a shard can be found without reading the key.
  std::uint64_t hash_of(block_index block) const noexcept {
    return records_[block].key_hash.load(std::memory_order_relaxed);
  }
  // One past the highest record number ever handed out.
  block_index high_water() const noexcept { return high_water_.load(std::memory_order_acquire); }
  std::uint32_t records_max() const noexcept;

  // Makes room for `blocks` in the chains. Not on the data path.
  void expect(std::uint32_t blocks);
  // Bytes of index memory that `blocks` blocks of one part use here.
  std::uint64_t index_bytes(std::uint64_t blocks) const noexcept;

private:
  struct alignas(64) shard {
    mutable std::mutex mutex;          // look-ups are short; a reader-writer lock would cost more
    std::vector<block_index> buckets;  // GUARDED_BY(mutex); size is a power of two
    // Where the buckets lie, for prefetch() alone: a stale address is harmless to prefetch.
    std::atomic<const block_index*> hint{nullptr};
    std::atomic<std::size_t> hint_mask{0};
  };
  shard& shard_of(std::uint64_t key_hash) noexcept { return shards_[key_hash % shard_count]; }
  const shard& shard_of(std::uint64_t key_hash) const noexcept {
    return shards_[key_hash % shard_count];
  }
  static std::size_t bucket_of(const shard& in, std::uint64_t key_hash) noexcept {
    return (key_hash / shard_count) & (in.buckets.size() - 1);
  }

  std::uint64_t seed_;
  std::array<shard, shard_count> shards_;
  reserved_array<block_record> records_;
  reserved_array<part_node> nodes_;

  mutable std::mutex free_mutex_;       // two short lists; taken once a record, never per look-up
  block_index free_record_ = no_block;  // GUARDED_BY(free_mutex_)
  part_index free_node_ = no_part;      // GUARDED_BY(free_mutex_)
  part_index next_node_ = 1;            // GUARDED_BY(free_mutex_)
  std::atomic<block_index> high_water_{0};
};

}  // namespace kvd
