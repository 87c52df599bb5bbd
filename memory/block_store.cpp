#include "memory/block_store.hpp"

#include <algorithm>
#include <array>
#include <cassert>

#include <fmt/format.h>

namespace kvd {

namespace {

// Claims are given slots, and sealed blocks published, in batches that fit the stack.
constexpr std::size_t batch_size = 256;
// Blocks that one step of moving a slab evicts; the pool is asked again for the rest.
constexpr std::size_t window_owners_max = 4096;

}  // namespace

block_store::block_store(options how, slab_pool& pool, std::unique_ptr<eviction_policy> policy,
                         const clock& time, store_metrics& metrics)
    : options_(how), pool_(pool), clock_(time), started_(time.now()), metrics_(metrics),
      table_(how.records_max, how.hash_seed), policy_(std::move(policy)),
      scope_table_(limits::scopes_max), window_(window_owners_max) {
  for (const auto& each : pool_.snapshot().nodes)
    nodes_.push_back(each.node);
}

std::uint32_t block_store::seconds_since_start() const noexcept {
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(clock_.now() - started_);
  return static_cast<std::uint32_t>(age.count());
}

result<scope_id> block_store::open_scope(std::string_view namespace_name, std::uint32_t group,
                                         const group_layout& layout) {
  const std::lock_guard lock(scopes_mutex_);
  if (const auto known = known_scope(namespace_name, group, layout.fingerprint)) return *known;
  if (scopes_.size() == limits::scopes_max) {
    return fail(errc::limit_exceeded,
                fmt::format("{} layouts are in use, limit {}", scopes_.size(), limits::scopes_max));
  }
  auto fresh = std::make_unique<scope>();
  fresh->group = group;
  fresh->fingerprint = layout.fingerprint;
  fresh->block_bytes = 0;
  for (const auto& part : layout.parts) {
    const auto cls = pool_.learn(part.bytes);
    if (!cls) return tl::unexpected(cls.error());
    fresh->parts.push_back({*cls, part.cells, part.bytes});
    fresh->block_bytes += pool_.bytes_of(*cls);
  }
  const auto same_name = [&](const namespace_usage& u) { return u.name == namespace_name; };
  const auto usage = std::find_if(namespaces_.begin(), namespaces_.end(), same_name);
  if (usage == namespaces_.end()) {
    namespaces_.emplace_back().name = namespace_name;
    fresh->usage = &namespaces_.back();
  } else {
    fresh->usage = &*usage;
  }
  const auto id = static_cast<scope_id>(scopes_.size());
  const auto fit = std::min<std::uint64_t>(pool_.capacity_bytes() / fresh->block_bytes + 1,
                                           table_.records_max());
  // Blocks of the new layout at most, and as many again for what other layouts still hold.
  // Tiny parts in a large pool could be tens of millions of blocks; tables for those grow when they
  // come, not because somebody registered such a layout.
  const auto planned = std::min<std::uint64_t>(fit, limits::blocks_planned_max);
  const auto expected = std::max(blocks_expected_, static_cast<std::uint32_t>(planned));
  if (expected > blocks_expected_) {
    blocks_expected_ = expected;
    table_.expect(expected);
  }
  {
    const std::lock_guard policy_lock(policy_mutex_);
    const auto room = std::max(blocks_expected_, table_.high_water());
    if (in_policy_.size() < room) {
      policy_->reserve(room, blocks_expected_);
      in_policy_.resize(room, false);
    }
  }
  scope_table_[id].store(fresh.get(), std::memory_order_release);
  scopes_.push_back(std::move(fresh));
  return id;
}

std::optional<scope_id> block_store::find_scope(std::string_view namespace_name,
                                                std::uint32_t group,
                                                layout_fingerprint fingerprint) const {
  const std::lock_guard lock(scopes_mutex_);
  return known_scope(namespace_name, group, fingerprint);
}

std::optional<scope_id> block_store::known_scope(std::string_view namespace_name,
                                                 std::uint32_t group,
                                                 layout_fingerprint fingerprint) const {
  for (scope_id id = 0; id < scopes_.size(); ++id) {
    const auto& known = *scopes_[id];
    if (known.usage->name == namespace_name && known.group == group &&
        known.fingerprint == fingerprint) {
      return id;
    }
  }
  return std::nullopt;
}

const scope& block_store::scope_of(scope_id id) const noexcept {
  return *scope_table_[id].load(std::memory_order_acquire);
}

std::vector<const namespace_usage*> block_store::namespaces() const {
  const std::lock_guard lock(scopes_mutex_);
  std::vector<const namespace_usage*> all;
  for (const auto& each : namespaces_)
    all.push_back(&each);
  return all;
}

// -- claims --------------------------------------------------------------------------------------

block_store::claim_step block_store::claim_one(const claim_request& request, std::uint32_t position,
                                               part_claim& out) {
  const std::string_view hash = *request.hashes[position];
  const auto key_hash = table_.hash_of(request.in, hash);
  const std::lock_guard lock(table_.lock_of(key_hash));
  auto block = table_.find(key_hash, request.in, hash);
  const bool created = block == no_block;
  if (created) block = table_.create(key_hash, request.in, hash);
  if (block == no_block) return claim_step::full;
  auto& record = table_[block];
  if (record.state == block_state::sealed) return claim_step::present;
  if (created) {
    record.stamp_seconds = seconds_since_start();
    record.origin = request.origin;
  }

  auto at = record.parts;
  while (at != no_part && table_.node(at).part != request.part)
    at = table_.node(at).next;
  bool partial = false;
  if (at == no_part) {
    at = table_.add_part(block, static_cast<std::uint16_t>(request.part));
    if (at == no_part) {
      if (created) {
        table_.unlink(key_hash, block);
        record.generation.fetch_add(1);
        table_.free_record(block);
      }
      return claim_step::full;
    }
  } else {
    auto& node = table_.node(at);
    if (node.state == part_state::copying) return claim_step::busy;
    if (node.state == part_state::filled) return claim_step::present;
    node.state = part_state::copying;
    partial = true;
  }
  record.pins.fetch_add(1);
  const auto place = table_.node(at).place;
  out = {block, at, position, partial, place == no_slot ? nullptr : pool_.address(place)};
  return claim_step::claimed;
}

claim_counts block_store::claim(const claim_request& request, std::vector<part_claim>& claims,
                                std::vector<std::uint32_t>& busy) {
  claim_counts counts;
  const auto first = claims.size();
  for (const auto position : request.positions) {
    part_claim claim{};
    switch (claim_one(request, position, claim)) {
    case claim_step::claimed: claims.push_back(claim); break;
    case claim_step::present: ++counts.present; break;
    case claim_step::busy: busy.push_back(position); break;
    case claim_step::full: ++counts.no_room; break;
    }
  }
  assign_slots(request, std::span(claims).subspan(first));
  auto keep = claims.begin() + static_cast<std::ptrdiff_t>(first);
  for (auto at = keep; at != claims.end(); ++at) {
    if (at->address != nullptr) {
      *keep++ = *at;
    } else {
      drop_claim(*at);
      // While the pool is still being claimed there will be room soon.
      if (still_claiming()) {
        busy.push_back(at->position);
      } else {
        ++counts.no_room;
      }
    }
  }
  claims.erase(keep, claims.end());
  metrics_.save_blocks_present.add(counts.present);
  metrics_.save_blocks_dropped.add(counts.no_room);
  notice_pressure();
  return counts;
}

// Gives a slot to each claim that has none, in prefix order, until there is no room for the next.
void block_store::assign_slots(const claim_request& request, std::span<part_claim> claims) {
  const auto cls = scope_of(request.in).parts[request.part].slots;
  std::array<slot, batch_size> places{};
  std::array<block_index, batch_size> owners{};
  std::array<part_claim*, batch_size> waiting{};
  std::size_t at = 0;
  while (at < claims.size()) {
    std::size_t need = 0;
    for (; at < claims.size() && need < batch_size; ++at) {
      if (claims[at].address != nullptr) continue;
      owners[need] = claims[at].block;
      waiting[need++] = &claims[at];
    }
    const auto got =
        obtain_slots(request, std::span(owners).first(need), std::span(places).first(need));
    for (std::size_t i = 0; i < got; ++i) {
      table_.node(waiting[i]->node).place = places[i];
      waiting[i]->address = pool_.address(places[i]);
    }
    metrics_.inflight_bytes.add(static_cast<std::int64_t>(got * pool_.bytes_of(cls)));
    if (got < need) return;
  }
}

std::size_t block_store::obtain_slots(const claim_request& request,
                                      std::span<const block_index> owners, std::span<slot> places) {
  const auto cls = scope_of(request.in).parts[request.part].slots;
  auto need = owners.size();
  std::size_t got = 0;
  bool asked = request.fetch || !options_.check_admission;
  while (true) {
    const auto allowed = std::min(need - got, outside_reserve(request, pool_.bytes_of(cls)));
    got += pool_.allocate(cls, request.numa_node, places.subspan(got, allowed),
                          owners.subspan(got, allowed));
    if (got == need || still_claiming()) return got;
    if (!asked) {
      // Room is short: from here on a new block displaces an old one, so it must be worth it.
      need = got + admitted(owners.subspan(got));
      asked = true;
    } else if (make_room(cls, request.numa_node, need - got) == 0) {
      metrics_.alloc_failures.add();
      return got;
    }
  }
}

// How many slots a claim may take without using what is kept for fetches.
std::size_t block_store::outside_reserve(const claim_request& request,
                                         std::uint64_t slot_bytes) const noexcept {
  if (request.fetch || options_.fetch_reserve == 0) return batch_size;
  const auto limit = pool_.claimed_bytes() / 1000 * (1000 - options_.fetch_reserve);
  const auto used = pool_.used_bytes();
  return used < limit ? (limit - used) / slot_bytes : 0;
}

// How many of the leading blocks the policy lets in: from the root to the deepest one it admits. A
// block behind a hole could never be part of a prefix.
std::size_t block_store::admitted(std::span<const block_index> blocks) {
  const std::lock_guard lock(policy_mutex_);
  auto count = blocks.size();
  while (count > 0 && !policy_->admit(table_.hash_of(blocks[count - 1])))
    --count;
  metrics_.admission_rejections.add(blocks.size() - count);
  return count;
}

void block_store::commit(std::span<const part_claim> claims, std::span<const std::uint32_t> cells) {
  std::array<sealed_block, batch_size> sealed{};
  std::array<block_index, batch_size> waiting{};
  // From the last claim to the first, so that leaves enter the eviction order before their roots.
  while (!claims.empty()) {
    const auto count = std::min(claims.size(), batch_size);
    std::size_t sealed_count = 0;
    std::size_t waiting_count = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto& claim = claims[claims.size() - 1 - i];
      // Read while the claim's pin keeps the record: once sealed, it may end at any time.
      const auto generation = table_[claim.block].generation.load();
      switch (commit_one(claim, cells)) {
      case commit_step::sealed: sealed[sealed_count++] = {claim.block, generation}; break;
      case commit_step::first_part: waiting[waiting_count++] = claim.block; break;
      case commit_step::more: break;
      }
    }
    publish(std::span(sealed).first(sealed_count));
    if (waiting_count > 0) remember_unsealed(std::span(waiting).first(waiting_count));
    claims = claims.first(claims.size() - count);
  }
}

// Notes the cells of a part that came in pieces; true when the part is whole.
bool block_store::fill_part(const part_claim& claim, std::span<const std::uint32_t> cells) {
  const auto& record = table_[claim.block];
  const auto& part = scope_of(record.scope).parts[table_.node(claim.node).part];
  if (!claim.partial && cells.size() == part.cells) return true;
  const std::lock_guard lock(filling_mutex_);
  auto& filled = part_fill_[claim.node];
  filled.resize(part.cells, false);
  for (const auto cell : cells)
    filled[cell] = true;
  if (std::find(filled.begin(), filled.end(), false) != filled.end()) return false;
  part_fill_.erase(claim.node);
  return true;
}

bool block_store::cell_filled(const part_claim& claim, std::uint32_t cell) const {
  if (!claim.partial) return false;
  const std::lock_guard lock(filling_mutex_);
  const auto at = part_fill_.find(claim.node);
  return at != part_fill_.end() && at->second[cell];
}

block_store::commit_step block_store::commit_one(const part_claim& claim,
                                                 std::span<const std::uint32_t> cells) {
  const bool whole = fill_part(claim, cells);
  const auto key_hash = table_.hash_of(claim.block);
  const std::lock_guard lock(table_.lock_of(key_hash));
  auto& record = table_[claim.block];
  const auto& in = scope_of(record.scope);
  auto& node = table_.node(claim.node);
  assert(node.state == part_state::copying && record.state == block_state::filling);
  node.state = whole ? part_state::filled : part_state::partial;
  if (whole) ++record.parts_filled;
  record.pins.fetch_sub(1);
  if (record.parts_filled == in.parts.size()) {
    record.stamp_seconds = seconds_since_start();
    record.state.store(block_state::sealed, std::memory_order_release);
    metrics_.inflight_bytes.add(-static_cast<std::int64_t>(in.block_bytes));
    metrics_.resident_bytes.add(static_cast<std::int64_t>(in.block_bytes));
    metrics_.resident_blocks.add(1);
    in.usage->resident_bytes.add(static_cast<std::int64_t>(in.block_bytes));
    in.usage->resident_blocks.add(1);
    in.usage->saved_blocks.add();
    if (feed_ != nullptr) feed_->push(record.scope, table_.key_of(claim.block), true);
    return commit_step::sealed;
  }
  return record.parts_filled <= 1 ? commit_step::first_part : commit_step::more;
}

void block_store::publish(std::span<const sealed_block> sealed) {
  if (sealed.empty()) return;
  metrics_.insertions.add(sealed.size());
  enter_policy(sealed);
  if (notify_sealed_) notify_sealed_(sealed);
}

void block_store::enter_policy(std::span<const sealed_block> sealed) {
  const std::lock_guard lock(policy_mutex_);
  for (const auto& [block, generation] : sealed) {
    if (block >= in_policy_.size()) grow_policy(block);
    // It may have been dropped by a cleanup since; then nobody would ever take it out again.
    if (table_[block].state != block_state::sealed || in_policy_[block]) continue;
    policy_->insert(block, table_.hash_of(block));
    in_policy_[block] = true;
  }
}

// REQUIRES: policy_mutex_ is held. Only reached when layouts of very different sizes share the
// pool.
void block_store::grow_policy(block_index block) {
  const auto room = std::min(std::max(block + 1, static_cast<block_index>(in_policy_.size()) * 2),
                             table_.records_max());
  policy_->reserve(room, room);
  in_policy_.resize(room, false);
}

void block_store::abandon(std::span<const part_claim> claims) {
  for (const auto& claim : claims)
    drop_claim(claim);
}

// Takes one claimed part out of its block, and the block away when it was the only one.
void block_store::drop_claim(const part_claim& claim) {
  if (claim.partial) {
    const std::lock_guard lock(filling_mutex_);
    part_fill_.erase(claim.node);
  }
  const auto key_hash = table_.hash_of(claim.block);
  slot place = no_slot;
  {
    const std::lock_guard lock(table_.lock_of(key_hash));
    auto& record = table_[claim.block];
    auto* link = &record.parts;
    while (*link != claim.node)
      link = &table_.node(*link).next;
    *link = table_.node(claim.node).next;
    place = table_.node(claim.node).place;
    table_.free_part(claim.node);
    record.pins.fetch_sub(1);
    if (record.parts == no_part) {
      table_.unlink(key_hash, claim.block);
      record.generation.fetch_add(1);
      table_.free_record(claim.block);
    }
  }
  if (place != no_slot) {
    metrics_.inflight_bytes.add(-static_cast<std::int64_t>(pool_.bytes_of(pool_.class_of(place))));
    pool_.release(std::span(&place, 1));
  }
}

}  // namespace kvd
