// Reading side of the block store: look-ups that pin, and giving pins back.

#include <algorithm>
#include <array>
#include <cassert>

#include "memory/block_store.hpp"

namespace kvd {

namespace {

// Keys whose chains are fetched ahead: enough to hide a memory access, few enough for the stack.
constexpr std::size_t lookahead = 16;
// The policy lock is given up after so many touches, so that a 10,000-block query delays nobody.
constexpr std::size_t touches_per_lock = 1024;

}  // namespace

bool block_store::pin_sealed(std::uint64_t key_hash, scope_id in, std::string_view hash,
                             block_index& out) {
  const std::lock_guard lock(table_.lock_of(key_hash));
  const auto block = table_.find(key_hash, in, hash);
  if (block == no_block) return false;
  auto& record = table_[block];
  if (record.state.load(std::memory_order_relaxed) != block_state::sealed) return false;
  if (record.pins.fetch_add(1) == 0) {
    metrics_.pinned_bytes.add(static_cast<std::int64_t>(scope_of(in).block_bytes));
  }
  out = block;
  return true;
}

std::size_t block_store::pin_prefix(scope_id in, hash_list hashes, std::vector<block_index>& out) {
  std::array<std::uint64_t, lookahead> keys{};
  const auto first = out.size();
  for (std::size_t at = 0; at < hashes.size(); at += lookahead) {
    const auto count = std::min(lookahead, hashes.size() - at);
    for (std::size_t i = 0; i < count; ++i) {
      keys[i] = table_.hash_of(in, *hashes[at + i]);
      table_.prefetch(keys[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      block_index block = no_block;
      if (!pin_sealed(keys[i], in, *hashes[at + i], block)) {
        touch(std::span(out).subspan(first));
        return out.size() - first;
      }
      out.push_back(block);
    }
  }
  touch(std::span(out).subspan(first));
  return out.size() - first;
}

std::size_t block_store::pin_members(scope_id in, hash_list hashes, std::vector<block_index>& out,
                                     std::vector<std::uint32_t>& positions) {
  const auto first = out.size();
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    block_index block = no_block;
    if (!pin_sealed(table_.hash_of(in, *hashes[i]), in, *hashes[i], block)) continue;
    out.push_back(block);
    positions.push_back(static_cast<std::uint32_t>(i));
  }
  touch(std::span(out).subspan(first));
  return out.size() - first;
}

void block_store::touch(std::span<const block_index> blocks) noexcept {
  // Last block first, so that the root of the prefix is the most recent and goes last.
  while (!blocks.empty()) {
    const auto count = std::min(blocks.size(), touches_per_lock);
    const std::lock_guard lock(policy_mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      const auto block = blocks[blocks.size() - 1 - i];
      if (block < in_policy_.size() && in_policy_[block])
        policy_->touch(block, table_.hash_of(block));
    }
    blocks = blocks.first(blocks.size() - count);
  }
}

void block_store::add_pins(std::span<const block_index> blocks) noexcept {
  for (const auto block : blocks) {
    [[maybe_unused]] const auto before = table_[block].pins.fetch_add(1);
    assert(before > 0);
  }
}

void block_store::pin_claimed(const part_claim& claim) noexcept {
  auto& record = table_[claim.block];
  [[maybe_unused]] const auto before = record.pins.fetch_add(1);
  assert(before > 0);
  // Pins of claims are not counted, and whoever gives back the last pin counts it as gone.
  metrics_.pinned_bytes.add(static_cast<std::int64_t>(scope_of(record.scope).block_bytes));
}

void block_store::unpin(std::span<const block_index> blocks) noexcept {
  for (const auto block : blocks) {
    auto& record = table_[block];
    const auto bytes = static_cast<std::int64_t>(scope_of(record.scope).block_bytes);
    // The record may be another block's as soon as the last pin is gone.
    if (record.pins.fetch_sub(1) != 1) continue;
    metrics_.pinned_bytes.add(-bytes);
    if (record.state.load() == block_state::detached) finish_detached(block);
  }
}

slot block_store::place_of(block_index block, std::uint32_t part) const noexcept {
  auto at = table_[block].parts;
  while (table_.node(at).part != part)
    at = table_.node(at).next;
  return table_.node(at).place;
}

const std::byte* block_store::part_address(block_index block, std::uint32_t part) const noexcept {
  return pool_.address(place_of(block, part));
}

std::uint32_t block_store::part_unit(block_index block, std::uint32_t part) const noexcept {
  return place_of(block, part).unit;
}

block_index
block_store::for_each_sealed(block_index from, block_index records,
                             const std::function<void(scope_id, std::string_view)>& see) const {
  const auto end = std::min(table_.high_water(), from + std::min(records, no_block - from));
  for (auto block = from; block < end; ++block) {
    const auto& record = table_[block];
    if (record.state.load(std::memory_order_relaxed) != block_state::sealed) continue;
    const auto key_hash = table_.hash_of(block);
    const std::lock_guard lock(table_.lock_of(key_hash));
    if (record.state.load(std::memory_order_relaxed) != block_state::sealed ||
        table_.hash_of(block) != key_hash) {
      continue;  // it ended, and may be another's: then that one was told of later
    }
    see(record.scope, table_.key_of(block));
  }
  return end < table_.high_water() ? end : 0;
}

std::size_t block_store::count_foreign(std::span<const block_index> blocks,
                                       std::uint32_t origin) const noexcept {
  const auto foreign = [&](block_index block) { return table_[block].origin != origin; };
  return static_cast<std::size_t>(std::count_if(blocks.begin(), blocks.end(), foreign));
}

bool block_store::pin_again(const sealed_block& block) noexcept {
  const auto key_hash = table_.hash_of(block.block);
  const std::lock_guard lock(table_.lock_of(key_hash));
  auto& record = table_[block.block];
  if (record.generation.load() != block.generation || table_.hash_of(block.block) != key_hash ||
      record.state.load(std::memory_order_relaxed) != block_state::sealed) {
    return false;
  }
  if (record.pins.fetch_add(1) == 0) {
    metrics_.pinned_bytes.add(static_cast<std::int64_t>(scope_of(record.scope).block_bytes));
  }
  return true;
}

void block_store::count_lookup(scope_id in, std::size_t asked, std::size_t hits,
                               brought_up fetched) noexcept {
  metrics_.block_hits.add(hits);
  metrics_.block_misses.add(asked - hits);
  metrics_.tier_ram.add(hits - fetched.ssd - fetched.peers);
  metrics_.tier_ssd.add(fetched.ssd);
  metrics_.tier_peer.add(fetched.peers);
  metrics_.tier_miss.add(asked - hits);
  auto& usage = *scope_of(in).usage;
  usage.block_hits.add(hits);
  usage.block_misses.add(asked - hits);
}

}  // namespace kvd
