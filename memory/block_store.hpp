#pragma once
// Blocks in RAM: who may find them, who fills them, who keeps them, and which go when room is
// short.
//
// A block is born `filling` when a worker claims its first part, becomes `sealed` (and can be
// found) when all parts are filled, and ends by eviction, cleanup, or age if its other workers
// never came. A pin keeps a block's bytes in place; leases and running copies hold pins.
//
//   claim() -> copy into the part -> commit()       or abandon(), when the copy failed
//   pin_prefix()/pin_members() -> read the parts -> unpin()
//
// Threads: any. Lock order: evictor -> policy, evictor -> shard -> list of filling blocks; a pool
// node's lock is taken while none of ours but the evictor's is held. No call allocates once scopes
// are open and the caller's vectors have grown, but for cells that arrive in pieces (part_fill).

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_table.hpp"
#include "memory/eviction_policy.hpp"
#include "memory/residency_feed.hpp"
#include "memory/slab_pool.hpp"
#include "memory/topology.hpp"

namespace kvd {

// What one namespace holds and gets, for accounting; lives as long as the store.
struct namespace_usage {
  std::string name;
  gauge resident_blocks;
  gauge resident_bytes;
  counter block_hits;
  counter block_misses;
  counter saved_blocks;
};

struct scope {
  namespace_usage* usage;
  std::uint32_t group;
  layout_fingerprint fingerprint;
  std::uint64_t block_bytes;
  struct part {
    size_class slots;
    std::uint32_t cells;
    std::uint64_t bytes;
  };
  std::vector<part> parts;
};

// The right to fill one part of one block; holds a pin. Ends in commit() or abandon().
struct part_claim {
  block_index block;
  part_index node;
  std::uint32_t position;  // in the list that was claimed
  bool partial;            // some cells were filled before: ask cell_filled()
  std::byte* address;      // first byte of the part
};

// A block that was sealed, without a pin: it may end, and its record be another's, at any time.
struct sealed_block {
  block_index block;
  std::uint32_t generation;
};

// Blocks that came up for a query, by where they came from.
struct brought_up {
  std::size_t ssd = 0;
  std::size_t peers = 0;
};

// What became of the positions of a claim() that were not claimed.
struct claim_counts {
  std::uint32_t present = 0;  // already stored
  std::uint32_t no_room = 0;  // pool full of blocks that may not go, or not admitted
};

// Hashes as they lie in the request, not copied.
using hash_list = std::span<const std::string* const>;

class block_store {
public:
  struct options {
    std::uint32_t records_max = 0;  // blocks at most
    std::uint64_t hash_seed = 0;
    bool check_admission = false;  // ask the policy before a new block displaces old ones
    // Background eviction starts above `high` and stops below `low`, in parts of 1000 of the pool.
    std::uint32_t high_watermark = 985;  // below what is not reserved
    std::uint32_t low_watermark = 970;
    // Of the pool, in parts of 1000, that claims of saves leave to those of `fetch`: what comes up
    // from a lower tier finds room although saves fill the pool.
    std::uint32_t fetch_reserve = 0;
  };

  // The references outlive the store.
  block_store(options how, slab_pool& pool, std::unique_ptr<eviction_policy> policy,
              const clock& time, store_metrics& metrics);

  // Called (on any thread, at most once until the next trim()) when the pool passes `high`.
  void on_pressure(std::function<void()> notify) { notify_pressure_ = std::move(notify); }

  // Called (on any thread) with blocks that were just sealed, in batches; none is pinned. It must
  // not call the store.
  void on_sealed(std::function<void(std::span<const sealed_block>)> notify) {
    notify_sealed_ = std::move(notify);
  }

  // Is told what becomes and ceases to be resident; outlives the store. REQUIRES: no block yet.
  void tell(residency_feed& feed) noexcept { feed_ = &feed; }

  // The scope of (namespace, group, layout); learns its part sizes. Idempotent. limit_exceeded when
  // a part cannot fit the pool.
  result<scope_id> open_scope(std::string_view namespace_name, std::uint32_t group,
                              const group_layout& layout);
  const scope& scope_of(scope_id id) const noexcept;
  // As open_scope(), but opens nothing; nothing when no instance has had that layout.
  std::optional<scope_id> find_scope(std::string_view namespace_name, std::uint32_t group,
                                     layout_fingerprint fingerprint) const;
  std::vector<const namespace_usage*> namespaces() const;

  // -- reading -----------------------------------------------------------------------------------
  // Pins the leading run of sealed blocks, appends them to `out`, returns its length.
  std::size_t pin_prefix(scope_id in, hash_list hashes, std::vector<block_index>& out);
  // Pins every sealed block, appends it and its position; returns how many.
  std::size_t pin_members(scope_id in, hash_list hashes, std::vector<block_index>& out,
                          std::vector<std::uint32_t>& positions);
  // REQUIRES: the caller holds a pin on each.
  void add_pins(std::span<const block_index> blocks) noexcept;
  void unpin(std::span<const block_index> blocks) noexcept;
  // Pins the block of a claim for its time after commit().
  void pin_claimed(const part_claim& claim) noexcept;
  // First byte of a part of a sealed block. REQUIRES: pinned, part < parts of its scope.
  const std::byte* part_address(block_index block, std::uint32_t part) const noexcept;
  // Where a part begins in the pool, in units of limits::pool_unit_bytes. REQUIRES: as above.
  std::uint32_t part_unit(block_index block, std::uint32_t part) const noexcept;
  // Calls `see` with every block that can be found among records [from, from + records), each under
  // its shard's lock; returns where to go on, 0 when all were seen.
  block_index for_each_sealed(block_index from, block_index records,
                              const std::function<void(scope_id, std::string_view)>& see) const;
  // Pins a block that was sealed; false when it has ended since.
  bool pin_again(const sealed_block& block) noexcept;
  // Whose views show the block's own memory. REQUIRES: pinned.
  scope_id scope_id_of(block_index block) const noexcept { return table_[block].scope; }
  std::string_view hash_of(block_index block) const noexcept { return table_.key_of(block); }
  // Bytes of the slot that a part lies in: at least the part's.
  std::uint64_t slot_bytes(const scope::part& part) const noexcept {
    return pool_.bytes_of(part.slots);
  }
  // How many of these blocks another instance saved first. REQUIRES: pinned.
  std::size_t count_foreign(std::span<const block_index> blocks,
                            std::uint32_t origin) const noexcept;
  // Accounts for one answered look-up: `hits` of `asked` blocks, `fetched` of them brought up for
  // it.
  void count_lookup(scope_id in, std::size_t asked, std::size_t hits, brought_up fetched) noexcept;

  // -- writing -----------------------------------------------------------------------------------
  struct claim_request {
    scope_id in;
    std::uint32_t part;
    int numa_node;         // preferred
    std::uint32_t origin;  // serial of the instance that saves
    hash_list hashes;
    std::span<const std::uint32_t> positions;  // which of `hashes` to claim, in prefix order
    bool fetch = false;  // for a lower tier's bytes: may use the reserve, and is always admitted
  };
  // Appends the claims to `claims`. Positions that another copy is filling now, or that wait for
  // the pool to be claimed, go to `busy`: claim them again later. Room is made by eviction; what
  // still does not fit is counted, never an error.
  claim_counts claim(const claim_request& request, std::vector<part_claim>& claims,
                     std::vector<std::uint32_t>& busy);
  // Whether a cell of a partial claim is there already.
  bool cell_filled(const part_claim& claim, std::uint32_t cell) const;
  // The cells were copied for each claim: seals blocks whose last part this was. Sealed blocks can
  // be found when this returns. Claims are over.
  void commit(std::span<const part_claim> claims, std::span<const std::uint32_t> cells);
  // The copy failed: gives the slots back. Claims are over.
  void abandon(std::span<const part_claim> claims);

  // -- upkeep (the cache actor) ------------------------------------------------------------------
  // Evicts down to the low watermark, at most `blocks_max` blocks; returns how many.
  std::size_t trim(std::size_t blocks_max);
  bool above_low_watermark() const;
  // Drops unsealed blocks older than `age`; returns how many.
  std::size_t drop_unsealed(duration age);
  struct cleanup {
    std::uint64_t evicted_blocks = 0;
    std::uint64_t evicted_bytes = 0;
    std::uint64_t reclaimed_bytes = 0;
    std::uint64_t still_referenced_blocks = 0;
  };
  // Makes every sealed block unfindable; those with pins lose their bytes with the last pin.
  cleanup drop_resident();

  std::string_view policy_name() const noexcept { return policy_->name(); }
  // Bytes of index and policy memory that the sealed and filling blocks use, slots aside.
  std::uint64_t index_bytes() const noexcept;
  // These blocks have copies on other nodes: they are the first to go, oldest hint first. Blocks
  // that are not here are left out.
  void hint_reclaimable(scope_id in, hash_list hashes);
  // Verifies the invariants that can be checked while nobody else is active; empty when they hold.
  std::string check();

private:
  class pin_filter;
  struct unsealed {
    block_index block;
    std::uint32_t generation;
    time_point since;
  };

  // REQUIRES: scopes_mutex_ is held.
  std::optional<scope_id> known_scope(std::string_view namespace_name, std::uint32_t group,
                                      layout_fingerprint fingerprint) const;

  enum class claim_step : std::uint8_t { claimed, present, busy, full };
  claim_step claim_one(const claim_request& request, std::uint32_t position, part_claim& out);
  std::size_t outside_reserve(const claim_request& request,
                              std::uint64_t slot_bytes) const noexcept;
  bool still_claiming() const noexcept { return pool_.claimed_bytes() < pool_.capacity_bytes(); }
  void assign_slots(const claim_request& request, std::span<part_claim> claims);
  std::size_t obtain_slots(const claim_request& request, std::span<const block_index> owners,
                           std::span<slot> places);
  std::size_t admitted(std::span<const block_index> blocks);
  void grow_policy(block_index block);
  void drop_claim(const part_claim& claim);
  bool fill_part(const part_claim& claim, std::span<const std::uint32_t> cells);
  enum class commit_step : std::uint8_t { sealed, first_part, more };
  commit_step commit_one(const part_claim& claim, std::span<const std::uint32_t> cells);
  void publish(std::span<const sealed_block> sealed);
  void enter_policy(std::span<const sealed_block> sealed);
  void remember_unsealed(std::span<const block_index> blocks);

  slot place_of(block_index block, std::uint32_t part) const noexcept;
  bool pin_sealed(std::uint64_t key_hash, scope_id in, std::string_view hash, block_index& out);
  void touch(std::span<const block_index> blocks) noexcept;

  enum class leaving : std::uint8_t { pressure, cleanup };
  block_index next_hinted();
  std::size_t make_room(size_class wanted, int node, std::size_t slots);
  std::size_t make_window(size_class wanted, int node);
  std::size_t evict_batch(std::size_t count, size_class wanted, bool& other_class);
  bool evict_block(block_index block, leaving why);
  void return_to_policy(block_index block, std::uint32_t generation);
  bool leave_policy(block_index block) noexcept;
  bool holds_class(block_index block, size_class wanted) const noexcept;
  void count_gone(block_index block, leaving why) noexcept;
  std::uint64_t free_block(block_index block) noexcept;
  void finish_detached(block_index block) noexcept;
  bool drop_unsealed_block(block_index block, std::uint32_t generation);
  void notice_pressure();
  std::uint32_t seconds_since_start() const noexcept;

  const options options_;
  slab_pool& pool_;
  const clock& clock_;
  const time_point started_;
  store_metrics& metrics_;
  block_table table_;
  std::vector<int> nodes_;  // of the pool
  std::function<void()> notify_pressure_;
  std::function<void(std::span<const sealed_block>)> notify_sealed_;
  residency_feed* feed_ = nullptr;
  std::atomic<bool> pressure_noticed_{false};

  // One lock for the order of all blocks: it is held for batches, tens of nanoseconds a block.
  mutable std::mutex policy_mutex_;
  std::unique_ptr<eviction_policy> policy_;  // GUARDED_BY(policy_mutex_)
  std::vector<bool> in_policy_;              // GUARDED_BY(policy_mutex_)
  std::deque<sealed_block> hinted_;          // GUARDED_BY(policy_mutex_), some may have ended

  mutable std::mutex scopes_mutex_;                        // taken at registration, not per block
  std::deque<namespace_usage> namespaces_;                 // GUARDED_BY(scopes_mutex_), stable
  reserved_array<std::atomic<const scope*>> scope_table_;  // written under it, read without
  std::vector<std::unique_ptr<scope>> scopes_;             // GUARDED_BY(scopes_mutex_)
  std::uint32_t blocks_expected_ = 0;                      // GUARDED_BY(scopes_mutex_)

  std::mutex evict_mutex_;           // one evictor at a time, so that victims are not wasted
  std::vector<block_index> window_;  // GUARDED_BY(evict_mutex_)

  mutable std::mutex filling_mutex_;  // only blocks that more than one save fills
  std::deque<unsealed> unsealed_;     // GUARDED_BY(filling_mutex_), oldest first
  std::unordered_map<part_index, std::vector<bool>> part_fill_;  // GUARDED_BY(filling_mutex_)
};

}  // namespace kvd
