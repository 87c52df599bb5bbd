// The end of blocks: eviction under pressure, cleanup, and unsealed blocks that grew too old.

#include <algorithm>
#include <array>
#include <cassert>

#include <fmt/format.h>

#include "memory/block_store.hpp"

namespace kvd {

namespace {

// Victims taken from the policy under one lock.
constexpr std::size_t victims_per_lock = 64;
// Parts of one block whose slots are given back in one call to the pool.
constexpr std::size_t slots_per_release = 64;

}  // namespace

// Refuses pinned blocks. A hint only: the shard's lock decides.
class block_store::pin_filter final : public evictable {
public:
  explicit pin_filter(block_table& table) : table_(table) {}
  bool operator()(block_index candidate) noexcept override {
    const auto& record = table_[candidate];
    return record.pins.load(std::memory_order_relaxed) == 0 &&
           record.state.load(std::memory_order_relaxed) == block_state::sealed;
  }
  std::uint64_t fingerprint(block_index resident) const noexcept override {
    return table_.hash_of(resident);
  }

private:
  block_table& table_;
};

// One round of eviction for `slots` slots of a class; returns how many blocks went, 0 when none
// may. The coldest block decides: if it holds that class its slots serve at once, if not, a slab
// moves.
std::size_t block_store::make_room(size_class wanted, int node, std::size_t slots) {
  const std::lock_guard lock(evict_mutex_);
  bool other_class = false;
  auto gone = evict_batch(std::min(slots, victims_per_lock), wanted, other_class);
  if (other_class || gone == 0) gone += make_window(wanted, node);
  return gone;
}

bool block_store::holds_class(block_index block, size_class wanted) const noexcept {
  const auto& parts = scope_of(table_[block].scope).parts;
  const auto has = [&](const scope::part& part) { return part.slots == wanted; };
  return std::any_of(parts.begin(), parts.end(), has);
}

// Takes the oldest hint out that still means something, and its block out of the policy. REQUIRES:
// policy_mutex_ is held.
block_index block_store::next_hinted() {
  while (!hinted_.empty()) {
    const auto next = hinted_.front();
    hinted_.pop_front();
    metrics_.reclaimable_blocks.set(static_cast<std::int64_t>(hinted_.size()));
    const auto& record = table_[next.block];
    const bool may_go = record.generation.load() == next.generation && in_policy_[next.block] &&
                        record.state.load() == block_state::sealed && record.pins.load() == 0;
    if (!may_go) continue;  // in use, it is as good as any other
    policy_->remove(next.block);
    return next.block;
  }
  return no_block;
}

void block_store::hint_reclaimable(scope_id in, hash_list hashes) {
  std::vector<sealed_block> found;
  for (const auto* hash : hashes) {
    const auto key_hash = table_.hash_of(in, *hash);
    const std::lock_guard lock(table_.lock_of(key_hash));
    const auto block = table_.find(key_hash, in, *hash);
    if (block == no_block || table_[block].state.load() != block_state::sealed) continue;
    found.push_back({block, table_[block].generation.load()});
  }
  const std::lock_guard lock(policy_mutex_);
  for (const auto& each : found)
    if (hinted_.size() < limits::reclaim_hints_max) hinted_.push_back(each);
  metrics_.reclaimable_blocks.set(static_cast<std::int64_t>(hinted_.size()));
}

// Evicts up to `count` blocks, hinted ones first, then in policy order; stops behind the first that
// holds no `wanted` slot.
std::size_t block_store::evict_batch(std::size_t count, size_class wanted, bool& other_class) {
  struct victim {
    block_index block;
    std::uint32_t generation;
  };
  std::array<victim, victims_per_lock> victims{};
  std::size_t taken = 0;
  pin_filter may_go(table_);
  {
    const std::lock_guard lock(policy_mutex_);
    while (taken < count && !other_class) {
      auto block = next_hinted();
      if (block == no_block) block = policy_->evict(may_go);
      if (block == no_block) break;
      in_policy_[block] = false;
      other_class = !holds_class(block, wanted);
      victims[taken++] = {block, table_[block].generation.load()};
    }
  }
  std::size_t gone = 0;
  for (const auto& each : std::span(victims).first(taken)) {
    if (evict_block(each.block, leaving::pressure)) {
      ++gone;
    } else {
      return_to_policy(each.block, each.generation);
    }
  }
  return gone;
}

// A victim was pinned between the policy's choice and ours: it is in use, so it is recent.
void block_store::return_to_policy(block_index block, std::uint32_t generation) {
  const std::lock_guard lock(policy_mutex_);
  const auto& record = table_[block];
  if (in_policy_[block] || record.generation.load() != generation ||
      record.state.load() != block_state::sealed) {
    return;
  }
  policy_->insert(block, table_.hash_of(block));
  in_policy_[block] = true;
}

bool block_store::leave_policy(block_index block) noexcept {
  const std::lock_guard lock(policy_mutex_);
  if (block >= in_policy_.size() || !in_policy_[block]) return false;
  policy_->remove(block);
  in_policy_[block] = false;
  return true;
}

// Vacates the cheapest run of slabs that can serve `wanted`, on `node` if possible; returns how
// many blocks went.
std::size_t block_store::make_window(size_class wanted, int node) {
  pin_filter may_go(table_);
  auto count = pool_.propose_window(wanted, node, may_go, window_);
  for (auto at = nodes_.begin(); count == 0 && at != nodes_.end(); ++at) {
    if (*at != node) count = pool_.propose_window(wanted, *at, may_go, window_);
  }
  std::size_t gone = 0;
  for (const auto block : std::span(window_).first(count)) {
    const auto generation = table_[block].generation.load();
    if (!leave_policy(block)) continue;  // gone already, or listed twice
    if (evict_block(block, leaving::pressure)) {
      ++gone;
    } else {
      return_to_policy(block, generation);
    }
  }
  if (gone > 0) metrics_.slabs_moved.add();
  return gone;
}

// Takes a sealed block without pins out of the table and frees its slots. REQUIRES: the policy does
// not hold it.
bool block_store::evict_block(block_index block, leaving why) {
  const auto key_hash = table_.hash_of(block);
  {
    const std::lock_guard lock(table_.lock_of(key_hash));
    auto& record = table_[block];
    if (record.state != block_state::sealed || record.pins.load() != 0 ||
        table_.hash_of(block) != key_hash) {
      return false;
    }
    table_.unlink(key_hash, block);
    record.state.store(block_state::detached);
    record.generation.fetch_add(1);
    if (feed_ != nullptr) feed_->push(record.scope, table_.key_of(block), false);
  }
  count_gone(block, why);
  metrics_.eviction_reclaimed_bytes.add(free_block(block));
  return true;
}

void block_store::count_gone(block_index block, leaving why) noexcept {
  const auto& record = table_[block];
  const auto& in = scope_of(record.scope);
  const auto bytes = static_cast<std::int64_t>(in.block_bytes);
  const double age = seconds_since_start() - record.stamp_seconds;
  if (why == leaving::pressure) {
    metrics_.evictions_pressure.add();
    metrics_.residence_pressure.observe(age);
  } else {
    metrics_.evictions_cleanup.add();
    metrics_.residence_cleanup.observe(age);
  }
  metrics_.resident_bytes.add(-bytes);
  metrics_.resident_blocks.add(-1);
  in.usage->resident_bytes.add(-bytes);
  in.usage->resident_blocks.add(-1);
}

// Gives back the slots and the record of a block nobody can reach; returns the bytes.
std::uint64_t block_store::free_block(block_index block) noexcept {
  std::array<slot, slots_per_release> places{};
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  auto& record = table_[block];
  for (auto at = record.parts; at != no_part;) {
    const auto following = table_.node(at).next;
    const auto place = table_.node(at).place;
    bytes += pool_.bytes_of(pool_.class_of(place));
    places[count++] = place;
    if (count == places.size()) {
      pool_.release(places);
      count = 0;
    }
    table_.free_part(at);
    at = following;
  }
  pool_.release(std::span(places).first(count));
  record.parts = no_part;
  table_.free_record(block);
  return bytes;
}

// The last pin of a block that a cleanup made unfindable is gone.
void block_store::finish_detached(block_index block) noexcept {
  {
    const std::lock_guard lock(table_.lock_of(table_.hash_of(block)));
    auto& record = table_[block];
    if (record.state != block_state::detached || record.pins.load() != 0 ||
        record.parts == no_part) {
      return;
    }
    record.state.store(block_state::free);
    record.generation.fetch_add(1);
  }
  free_block(block);
}

block_store::cleanup block_store::drop_resident() {
  cleanup total;
  const std::lock_guard evicting(evict_mutex_);
  for (block_index block = 0; block < table_.high_water(); ++block) {
    if (table_[block].state.load() != block_state::sealed) continue;
    const auto key_hash = table_.hash_of(block);
    bool referenced = false;
    {
      const std::lock_guard lock(table_.lock_of(key_hash));
      auto& record = table_[block];
      if (record.state != block_state::sealed || table_.hash_of(block) != key_hash) continue;
      table_.unlink(key_hash, block);
      if (feed_ != nullptr) feed_->push(record.scope, table_.key_of(block), false);
      total.evicted_bytes += scope_of(record.scope).block_bytes;
      // A pin of our own keeps the record ours until it is counted.
      referenced = record.pins.fetch_add(1) > 0;
      record.state.store(block_state::detached);
    }
    leave_policy(block);
    count_gone(block, leaving::cleanup);
    ++total.evicted_blocks;
    if (referenced) {
      ++total.still_referenced_blocks;
      metrics_.evictions_still_referenced.add();
    } else {
      total.reclaimed_bytes += scope_of(table_[block].scope).block_bytes;
      metrics_.eviction_reclaimed_bytes.add(scope_of(table_[block].scope).block_bytes);
    }
    const auto bytes = static_cast<std::int64_t>(scope_of(table_[block].scope).block_bytes);
    if (table_[block].pins.fetch_sub(1) == 1) {
      // The other pins went while ours was there, so their end is counted here.
      if (referenced) metrics_.pinned_bytes.add(-bytes);
      finish_detached(block);
    }
  }
  return total;
}

// -- watermarks ----------------------------------------------------------------------------------

void block_store::notice_pressure() {
  const auto used = pool_.used_bytes();
  if (used * 1000 < pool_.claimed_bytes() * options_.high_watermark) return;
  if (!pressure_noticed_.exchange(true) && notify_pressure_) notify_pressure_();
}

bool block_store::above_low_watermark() const {
  return pool_.used_bytes() * 1000 > pool_.claimed_bytes() * options_.low_watermark;
}

std::size_t block_store::trim(std::size_t blocks_max) {
  pressure_noticed_.store(false);
  std::size_t gone = 0;
  while (gone < blocks_max && above_low_watermark()) {
    const std::lock_guard lock(evict_mutex_);
    bool other_class = false;
    // Any class will do, so the first victim's own class is never "another".
    const auto count = evict_batch(1, any_class, other_class);
    if (count == 0) break;
    gone += count;
  }
  return gone;
}

// -- unsealed blocks -----------------------------------------------------------------------------

void block_store::remember_unsealed(std::span<const block_index> blocks) {
  const std::lock_guard lock(filling_mutex_);
  while (!unsealed_.empty()) {
    const auto& oldest = unsealed_.front();
    const auto& record = table_[oldest.block];
    if (record.generation.load() == oldest.generation && record.state == block_state::filling)
      break;
    unsealed_.pop_front();
  }
  for (const auto block : blocks) {
    unsealed_.push_back({block, table_[block].generation.load(), clock_.now()});
  }
}

std::size_t block_store::drop_unsealed(duration age) {
  std::size_t dropped = 0;
  const auto before = clock_.now() - age;
  while (true) {
    unsealed oldest{};
    {
      const std::lock_guard lock(filling_mutex_);
      if (unsealed_.empty() || unsealed_.front().since > before) return dropped;
      oldest = unsealed_.front();
      unsealed_.pop_front();
    }
    if (drop_unsealed_block(oldest.block, oldest.generation)) ++dropped;
  }
}

bool block_store::drop_unsealed_block(block_index block, std::uint32_t generation) {
  const auto key_hash = table_.hash_of(block);
  {
    const std::lock_guard lock(table_.lock_of(key_hash));
    auto& record = table_[block];
    if (record.generation.load() != generation || record.state != block_state::filling) {
      return false;  // sealed or gone
    }
    if (record.pins.load() != 0) {
      // A copy into it runs now. Should that be given up, nobody else would remember the block.
      const std::lock_guard filling(filling_mutex_);
      unsealed_.push_back({block, generation, clock_.now()});
      return false;
    }
    table_.unlink(key_hash, block);
    record.generation.fetch_add(1);
    record.state.store(block_state::free);
  }
  {
    const std::lock_guard lock(filling_mutex_);
    for (auto at = table_[block].parts; at != no_part; at = table_.node(at).next) {
      part_fill_.erase(at);
    }
  }
  metrics_.inflight_bytes.add(-static_cast<std::int64_t>(free_block(block)));
  metrics_.inflight_gc_cleaned.add();
  return true;
}

// -- introspection -------------------------------------------------------------------------------

std::uint64_t block_store::index_bytes() const noexcept {
  const std::lock_guard lock(policy_mutex_);
  return table_.index_bytes(table_.high_water()) + policy_->memory_bytes() + in_policy_.size() / 8;
}

std::string block_store::check() {
  std::uint64_t sealed = 0;
  for (block_index block = 0; block < table_.high_water(); ++block) {
    auto& record = table_[block];
    if (record.state != block_state::sealed) continue;
    ++sealed;
    const auto key_hash = table_.hash_of(block);
    const std::lock_guard lock(table_.lock_of(key_hash));
    if (table_.find(key_hash, record.scope, table_.key_of(block)) != block) {
      return fmt::format("sealed block {} is not in its chain", block);
    }
    if (record.parts_filled != scope_of(record.scope).parts.size()) {
      return fmt::format("sealed block {} has {} parts", block, record.parts_filled);
    }
  }
  const std::lock_guard lock(policy_mutex_);
  if (policy_->resident() != sealed) {
    return fmt::format("{} sealed blocks, but the policy orders {}", sealed, policy_->resident());
  }
  if (static_cast<std::uint64_t>(metrics_.resident_blocks.value()) != sealed) {
    return fmt::format("{} sealed blocks, but {} are counted", sealed,
                       metrics_.resident_blocks.value());
  }
  return pool_.check();
}

}  // namespace kvd
