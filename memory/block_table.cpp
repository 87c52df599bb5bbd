#include "memory/block_table.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include <xxhash.h>

namespace kvd {

block_table::block_table(std::uint32_t records_max, std::uint64_t seed)
    : seed_(seed), records_(records_max), nodes_(std::size_t{records_max} + 1) {
  expect(0);
}

std::uint32_t block_table::records_max() const noexcept {
  return static_cast<std::uint32_t>(records_.size());
}

std::uint64_t block_table::hash_of(scope_id scope, std::string_view hash) const noexcept {
  return XXH3_64bits_withSeed(hash.data(), hash.size(), seed_ + scope);
}

std::string_view block_table::key_of(block_index block) const noexcept {
  const auto& record = records_[block];
  return {record.hash.data(), record.hash_size};
}

void block_table::prefetch(std::uint64_t key_hash) const noexcept {
  const auto& in = shard_of(key_hash);
  const auto* buckets = in.hint.load(std::memory_order_relaxed);
  const auto mask = in.hint_mask.load(std::memory_order_relaxed);
  __builtin_prefetch(buckets + ((key_hash / shard_count) & mask));
}

block_index block_table::find(std::uint64_t key_hash, scope_id scope,
                              std::string_view hash) const noexcept {
  const auto& in = shard_of(key_hash);
  for (auto at = in.buckets[bucket_of(in, key_hash)]; at != no_block; at = records_[at].next) {
    const auto& record = records_[at];
    if (record.scope == scope && record.hash_size == hash.size() &&
        std::memcmp(record.hash.data(), hash.data(), hash.size()) == 0) {
      return at;
    }
  }
  return no_block;
}

block_index block_table::create(std::uint64_t key_hash, scope_id scope,
                                std::string_view hash) noexcept {
  assert(hash.size() <= limits::hash_bytes_max);
  block_index block = no_block;
  {
    const std::lock_guard lock(free_mutex_);
    if (free_record_ != no_block) {
      block = free_record_;
      free_record_ = records_[block].next;
    } else if (high_water_.load(std::memory_order_relaxed) < records_.size()) {
      block = high_water_.load(std::memory_order_relaxed);
      high_water_.store(block + 1, std::memory_order_release);
    } else {
      return no_block;
    }
  }
  auto& record = records_[block];
  std::memcpy(record.hash.data(), hash.data(), hash.size());
  record.hash_size = static_cast<std::uint8_t>(hash.size());
  record.scope = scope;
  record.key_hash.store(key_hash, std::memory_order_relaxed);
  record.parts = no_part;
  record.parts_filled = 0;
  record.state.store(block_state::filling, std::memory_order_release);
  auto& in = shard_of(key_hash);
  auto& head = in.buckets[bucket_of(in, key_hash)];
  record.next = head;
  head = block;
  return block;
}

void block_table::unlink(std::uint64_t key_hash, block_index block) noexcept {
  auto& in = shard_of(key_hash);
  auto* link = &in.buckets[bucket_of(in, key_hash)];
  while (*link != block) {
    assert(*link != no_block);
    link = &records_[*link].next;
  }
  *link = records_[block].next;
}

part_index block_table::add_part(block_index block, std::uint16_t part) noexcept {
  part_index at = no_part;
  {
    const std::lock_guard lock(free_mutex_);
    if (free_node_ != no_part) {
      at = free_node_;
      free_node_ = nodes_[at].next;
    } else if (next_node_ < nodes_.size()) {
      at = next_node_++;
    } else {
      return no_part;
    }
  }
  auto& record = records_[block];
  nodes_[at] = {no_slot, record.parts, part, part_state::copying};
  record.parts = at;
  return at;
}

void block_table::free_record(block_index block) noexcept {
  auto& record = records_[block];
  assert(record.pins.load() == 0 && record.parts == no_part);
  record.state.store(block_state::free, std::memory_order_release);
  const std::lock_guard lock(free_mutex_);
  record.next = free_record_;
  free_record_ = block;
}

void block_table::free_part(part_index at) noexcept {
  const std::lock_guard lock(free_mutex_);
  nodes_[at].next = free_node_;
  free_node_ = at;
}

void block_table::expect(std::uint32_t blocks) {
  // One to two blocks a bucket: half the memory of one at most, for half a step more a look-up.
  const auto wanted = std::bit_floor(std::max<std::size_t>(16, blocks / shard_count));
  for (auto& in : shards_) {
    std::vector<block_index> grown(wanted, no_block);
    const std::lock_guard lock(in.mutex);
    if (in.buckets.size() >= wanted) continue;
    grown.swap(in.buckets);
    in.hint.store(in.buckets.data(), std::memory_order_relaxed);
    in.hint_mask.store(in.buckets.size() - 1, std::memory_order_relaxed);
    for (auto chain : grown) {
      while (chain != no_block) {
        const auto following = records_[chain].next;
        auto& head = in.buckets[bucket_of(in, hash_of(chain))];
        records_[chain].next = head;
        head = chain;
        chain = following;
      }
    }
  }
}

std::uint64_t block_table::index_bytes(std::uint64_t blocks) const noexcept {
  std::uint64_t buckets = 0;
  for (const auto& in : shards_) {
    const std::lock_guard lock(in.mutex);
    buckets += in.buckets.size() * sizeof(block_index);
  }
  return buckets + blocks * sizeof(block_record);
}

}  // namespace kvd
