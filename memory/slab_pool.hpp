#pragma once
// Where stored bytes live: slots of a few sizes, cut from slabs, cut from the arena's regions.
//
//   region (one a NUMA node) |chunk|chunk|chunk|chunk|chunk|...      chunks: equal, a power of two
//                            \slab of class A/\ slab of class B /     slabs: 1..k adjoining chunks
//                            |slot|slot|slot| |  slot  |  slot  |     slots: one size a class
//
// A slot is named by its byte offset in the pool in units of limits::pool_unit_bytes. Slabs take
// chunks when a class needs slots and give them back when their last slot goes, so classes share
// the pool by demand. Bookkeeping lies outside the pool: 4 bytes and 1 bit a slot, in arrays whose
// address space is reserved once; after learn() no call but snapshot() and check() allocates.
//
// Threads: any thread calls anything; one lock a node, held for one call, never two at once. The
// lock-free readers (address .. owner_of) need a live slot that the caller learned of properly.
//
// Invariants (check() verifies them)
//  1. A claimed chunk is free or belongs to exactly one slab; a slab's chunks adjoin, in one node.
//  2. A slab counts its free slots as its bitmap does, and the bitmap ends with the slab.
//  3. A slab is in its class's set of open slabs exactly when it has a free slot.
//  4. No slab is without live slots: it would be free chunks.
//  5. A live slot has an owner, and starts at a multiple of its class's size from its slab.
//  6. Per-class and per-node counts equal what the slabs hold; nothing beyond the claim is used.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "memory/eviction_policy.hpp"
#include "memory/reserved_array.hpp"

namespace kvd {

// Byte offset in the pool / limits::pool_unit_bytes.
struct slot {
  std::uint32_t unit;
  friend bool operator==(const slot&, const slot&) = default;
};
inline constexpr slot no_slot{~std::uint32_t{0}};

using size_class = std::uint16_t;

// Memory of one NUMA node. `base` is at least 4096-aligned and outlives the pool.
struct pool_region {
  int node;
  std::byte* base;
  std::uint64_t bytes;
};

class slab_pool {
public:
  // Each class costs one bit a chunk; engines use a handful.
  static constexpr std::size_t classes_max = 1024;

  struct options {
    std::span<const pool_region> regions;  // nothing is usable before grow()
    std::uint64_t hint_value_bytes;        // typical part; 0: unknown
    bool blockwise;                        // do not look for contiguous runs
    // Of address and size of every slot: 512 to 4096, a power of two. What an SSD file asks for.
    std::uint64_t slot_alignment = 512;
  };

  // Bytes that slabs are made of, for a pool of `pool_bytes`; regions should be multiples of it.
  static std::uint64_t chunk_bytes_for(std::uint64_t pool_bytes, std::uint64_t hint_value_bytes);

  // invalid_argument: no region, a region below one chunk, or more than limits::pool_bytes_max.
  static result<std::unique_ptr<slab_pool>> create(const options& how);
  ~slab_pool();
  slab_pool(const slab_pool&) = delete;
  slab_pool& operator=(const slab_pool&) = delete;

  // The class for parts of `part_bytes`: rounded up to the slots' alignment below 64 KiB, to 4096
  // from there on.
  // Idempotent. invalid_argument names both sizes when no node can hold such a part;
  // limit_exceeded at classes_max.
  result<size_class> learn(std::uint64_t part_bytes);
  std::uint64_t bytes_of(size_class of) const noexcept;

  // Takes up to out.size() slots, from `preferred_node` first (any value that is no node: from the
  // emptiest), then from the others, and stores owners[i] with out[i]. Returns how many.
  // REQUIRES: owners.size() >= out.size(); owners are not no_block.
  std::size_t allocate(size_class of, int preferred_node, std::span<slot> out,
                       std::span<const block_index> owners) noexcept;
  // REQUIRES: all are live and distinct, and nobody reads or writes their bytes any more.
  void release(std::span<const slot> slots) noexcept;

  std::byte* address(slot at) const noexcept;
  // Byte offset in the pool of the first slot of a region of create().
  std::uint64_t region_offset(std::size_t region) const noexcept {
    return nodes_[region].first_chunk * chunk_bytes_;
  }
  int node_of(slot at) const noexcept;
  size_class class_of(slot at) const noexcept;
  block_index owner_of(slot at) const noexcept;

  // Owners of all live slots of the slab that holds `at`, so that it can be vacated; an owner with
  // several slots appears as often. Returns how many were written, at most out.size(); 0 when `at`
  // is in no slab any more.
  std::size_t slab_owners(slot at, std::span<block_index> out) const noexcept;
  std::size_t slots_per_slab_max() const noexcept;

  // Finds the adjoining chunks that are cheapest to vacate for one slab of `of`: fewest live bytes,
  // no owner that `may_go` refuses, no slab of `of` itself (to free a slot there is the eviction
  // policy's choice). Looks on `preferred_node` first and on the others only when it has none.
  // Writes their owners to `out` and returns how many, at most out.size(): a caller that got a full
  // `out` evicts those and asks again. 0 when nothing is to be vacated.
  // `may_go` runs under the node's lock and must not call the pool.
  std::size_t propose_window(size_class of, int preferred_node, evictable& may_go,
                             std::span<block_index> out) noexcept;

  // The arena claimed the first `bytes` bytes of the node's region; never shrinks.
  void grow(int node, std::uint64_t bytes) noexcept;

  struct class_usage {
    std::uint64_t bytes;  // of one slot
    std::uint64_t slots_live;
    std::uint64_t slots_free;
    std::uint64_t slabs;
  };
  struct node_usage {
    int node;
    std::uint64_t capacity;      // bytes it will have when the claim is over
    std::uint64_t claimed;       // bytes usable now
    std::uint64_t used;          // bytes of live slots
    std::uint64_t largest_free;  // bytes: longest run of free chunks, else the largest free slot
  };
  struct usage {
    std::uint64_t capacity = 0;
    std::uint64_t claimed = 0;
    std::uint64_t used = 0;
    std::uint64_t largest_free = 0;
    std::uint64_t chunk_bytes = 0;
    std::vector<node_usage> nodes;
    std::vector<class_usage> classes;  // by size_class
  };
  // Consistent within a node, not across nodes.
  usage snapshot() const;

  // Without a lock, for watermarks.
  std::uint64_t capacity_bytes() const noexcept { return capacity_; }
  std::uint64_t claimed_bytes() const noexcept { return claimed_.load(std::memory_order_relaxed); }
  std::uint64_t used_bytes() const noexcept { return used_.load(std::memory_order_relaxed); }

  // Says which numbered invariant is broken where; empty when all hold. Slow.
  std::string check() const;

private:
  static constexpr std::uint32_t no_chunk = ~std::uint32_t{0};

  // Chunks and the slabs they begin. `head` and `of` stay put while any slot of the slab lives, so
  // whoever has such a slot reads them without the lock.
  struct chunk {
    std::uint32_t head = no_chunk;  // first chunk of its slab; no_chunk: free or not claimed
    // The rest is the slab's, kept at its head.
    std::uint32_t slots_free = 0;
    std::uint32_t first_open_word = 0;  // no free slot before this word of the bitmap
    size_class of = 0;
    bool stuck = false;  // scratch of propose_window
  };
  struct class_shape {
    std::uint64_t bytes = 0;
    std::uint32_t units = 0;   // of one slot
    std::uint32_t chunks = 0;  // of one slab
    std::uint32_t slots = 0;   // of one slab
  };
  struct class_state {
    std::vector<std::uint64_t> open;  // bit a chunk of the node: a slab with free slots begins here
    std::uint64_t slots_live = 0;
    std::uint64_t slots_free = 0;
    std::uint64_t slabs = 0;
  };
  struct node_state {
    int node = 0;
    std::byte* base = nullptr;
    std::uint32_t first_chunk = 0;
    std::uint32_t chunks = 0;
    // Guards everything below and this node's chunks, owners and bitmaps. One a node because
    // copies of different sockets should not meet here; not finer because a call takes whole runs.
    mutable std::mutex mutex;
    // Written under the mutex; emptiest() reads them without.
    std::atomic<std::uint32_t> claimed{0};   // chunks
    std::atomic<std::uint64_t> used{0};      // bytes
    std::uint32_t cursor = 0;                // GUARDED_BY(mutex), of propose_window
    std::vector<std::uint64_t> free_chunks;  // GUARDED_BY(mutex), bit a chunk
    std::array<std::unique_ptr<class_state>, classes_max>
        classes;  // what they hold: GUARDED_BY(mutex)
  };
  struct window {
    std::uint32_t first;
    std::uint32_t chunks;
  };

  slab_pool(const options& how, std::uint64_t chunk_bytes, std::uint32_t chunk_count);

  std::uint32_t chunk_of(slot at) const noexcept { return at.unit >> chunk_shift_; }
  std::uint32_t first_unit(std::uint32_t head) const noexcept { return head << chunk_shift_; }
  std::uint32_t slot_number(slot at, std::uint32_t head) const noexcept;
  node_state& node_at(std::uint32_t chunk_index) const noexcept;
  node_state* find_node(int node) const noexcept;
  node_state& emptiest() const noexcept;
  std::span<std::uint64_t> bitmap_of(std::uint32_t head) const noexcept;
  class_shape shape_for(std::uint64_t bytes) const noexcept;

  // Takes the node's lock.
  std::size_t propose_on(node_state& in, size_class of, evictable& may_go,
                         std::span<block_index> out) noexcept;

  // REQUIRES for all below but check_node: the node's lock is held.
  std::size_t take(node_state& in, size_class of, std::span<slot> out,
                   std::span<const block_index> owners) noexcept;
  std::size_t take_run(node_state& in, size_class of, std::span<slot> out,
                       std::span<const block_index> owners) noexcept;
  std::size_t take_lowest(node_state& in, std::uint32_t head, std::span<slot> out,
                          std::span<const block_index> owners) noexcept;
  void account_taken(node_state& in, std::uint32_t head, std::uint32_t count) noexcept;
  std::uint32_t open_slab(node_state& in, size_class of) noexcept;
  void close_slab(node_state& in, std::uint32_t head) noexcept;
  void give_back(node_state& in, slot at) noexcept;
  std::size_t live_owners(std::uint32_t head, std::span<block_index> out) const noexcept;
  bool all_may_go(std::uint32_t head, evictable& may_go) const noexcept;
  std::uint64_t live_bytes(std::uint32_t head) const noexcept;
  window cheapest_window(const node_state& in, std::uint32_t chunks) const noexcept;
  template<class Visit>
  void for_each_slab(const node_state& in, window of, Visit visit) const noexcept;
  std::string check_node(const node_state& in) const;
  std::string check_slab(const node_state& in, std::uint32_t head) const;

  std::uint32_t chunk_shift_;  // units of a chunk, as a power of two
  std::uint64_t chunk_bytes_;
  std::uint64_t capacity_ = 0;
  bool blockwise_;
  std::uint64_t slot_alignment_;
  std::unique_ptr<node_state[]> nodes_;
  std::size_t node_count_;
  std::unique_ptr<chunk[]> chunks_;
  mutable reserved_array<block_index> owners_;     // of slot i of a slab: [its first unit + i]
  mutable reserved_array<std::uint64_t> bitmaps_;  // set bits are free slots
  std::uint32_t bitmap_words_;                     // a chunk

  std::mutex learn_mutex_;  // registration only; classes_ below class_count_ never change
  std::array<class_shape, classes_max> classes_;
  std::atomic<std::size_t> class_count_{0};
  std::atomic<std::uint64_t> claimed_{0};
  std::atomic<std::uint64_t> used_{0};
};

}  // namespace kvd
