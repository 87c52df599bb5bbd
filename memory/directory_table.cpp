#include "memory/directory_table.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace kvd {

namespace {

// Chains that a shard has at first, and one more for every record beyond that.
constexpr std::uint32_t chains_at_first = 64;

std::uint32_t chains_for(std::uint64_t owners_max) {
  // Keys spread evenly over the shards; half as much again is beyond any deviation.
  const auto mean = owners_max / directory_table::shard_count;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(chains_at_first, mean + mean / 2));
}

}  // namespace

directory_table::directory_table(std::uint64_t owners_max, std::uint64_t seed)
    : owners_max_(std::min(owners_max, limits::directory_owners_max)),
      // A shard may hold free records that another one lacks.
      records_max_(owners_max_ + owners_max_ / 16 + std::uint64_t{2} * chunk * shard_count),
      chains_max_(chains_for(owners_max_)), seed_(seed), shards_(shard_count),
      records_(records_max_ + 1), heads_(std::uint64_t{chains_max_} * shard_count),
      lists_(limits::directory_nodes_max) {
  for (auto& each : shards_)
    each.chains.store(chains_at_first, std::memory_order_relaxed);
}

bool directory_table::reserve(std::uint64_t count) noexcept {
  if (owners_.fetch_add(count, std::memory_order_relaxed) + count <= owners_max_) return true;
  give_back(count);
  return false;
}

void directory_table::give_back(std::uint64_t count) noexcept {
  owners_.fetch_sub(count, std::memory_order_relaxed);
}

std::uint64_t directory_table::keys() const noexcept {
  std::uint64_t total = 0;
  for (const auto& each : shards_)
    total += each.keys.load(std::memory_order_relaxed);
  return total;
}

std::uint64_t directory_table::memory_bytes() const noexcept {
  std::uint64_t heads = 0;
  for (const auto& each : shards_)
    heads += each.chains.load(std::memory_order_relaxed);
  return next_chunk_.load(std::memory_order_relaxed) * chunk * sizeof(owner_record) +
         heads * sizeof(head);
}

std::uint32_t directory_table::chain_number(const shard& in,
                                            const directory_key& key) const noexcept {
  const auto count = in.chains.load(std::memory_order_relaxed);
  const auto whole = std::bit_ceil(count);
  const auto at = spread(key) & (whole - 1);
  return at < count ? at : at - whole / 2;
}

const directory_table::head& directory_table::chain(const shard& in,
                                                    const directory_key& key) const noexcept {
  return heads_[first_chain(shard_of(key)) + chain_number(in, key)];
}

void directory_table::prefetch_chain(const directory_key& key) const noexcept {
  __builtin_prefetch(&chain(shards_[shard_of(key)], key));
}

void directory_table::prefetch_record(const directory_key& key) const noexcept {
  // Whatever it finds is the address of some record: nothing here moves.
  prefetch(chain(shards_[shard_of(key)], key).load(std::memory_order_relaxed));
}

directory_table::put_outcome directory_table::put(const directory_key& key, session_index session,
                                                  std::uint32_t since,
                                                  std::uint32_t round) noexcept {
  auto& in = shards_[shard_of(key)];
  bool known = false;
  const auto first = chain(in, key).load(std::memory_order_relaxed);
  for (auto at = first; at != no_owner; at = records_[at].next_in_chain) {
    if (!(records_[at].key == key)) continue;
    known = true;
    if (records_[at].session != session) continue;
    detach(at);
    records_[at].since = since;
    records_[at].round = round;
    append(at);
    return put_outcome::refreshed;
  }
  const auto at = take_record(in);
  if (at == no_owner) return put_outcome::full;
  records_[at] = {.key = key,
                  .next_in_chain = first,
                  .newer = no_owner,
                  .older = no_owner,
                  .session = session,
                  .since = since,
                  .round = round};
  chain(in, key).store(at, std::memory_order_relaxed);
  append(at);
  lists_[session].sums[directory_digest::bucket_of(key)] += directory_digest::term_of(key);
  if (!known) in.keys.fetch_add(1, std::memory_order_relaxed);
  ++in.records;
  grow(in);
  return put_outcome::added;
}

directory_table::dropped directory_table::drop(const directory_key& key,
                                               session_index session) noexcept {
  const auto& in = shards_[shard_of(key)];
  auto at = chain(in, key).load(std::memory_order_relaxed);
  while (at != no_owner && !(records_[at].key == key && records_[at].session == session))
    at = records_[at].next_in_chain;
  if (at == no_owner) return {};
  return {.owners = 1, .keys = unlink(at) ? 1U : 0U};
}

bool directory_table::unlink(owner_index at) noexcept {
  const auto key = records_[at].key;
  const auto session = records_[at].session;
  auto& in = shards_[shard_of(key)];
  bool last = true;
  owner_index before = no_owner;
  const auto first = chain(in, key).load(std::memory_order_relaxed);
  for (auto each = first; each != no_owner; each = records_[each].next_in_chain) {
    if (records_[each].next_in_chain == at) before = each;
    if (each != at && records_[each].key == key) last = false;
  }
  const auto after = records_[at].next_in_chain;
  if (before == no_owner) {
    chain(in, key).store(after, std::memory_order_relaxed);
  } else {
    records_[before].next_in_chain = after;
  }
  detach(at);
  lists_[session].sums[directory_digest::bucket_of(key)] -= directory_digest::term_of(key);
  records_[at].next_in_chain = in.free;
  in.free = at;
  --in.records;
  if (last) in.keys.fetch_sub(1, std::memory_order_relaxed);
  return last;
}

owner_index directory_table::take_record(shard& in) noexcept {
  if (in.free != no_owner) {
    const auto at = in.free;
    in.free = records_[at].next_in_chain;
    return at;
  }
  if (in.fresh == in.fresh_end) {
    const auto first = next_chunk_.load(std::memory_order_relaxed) * chunk + 1;
    if (first + chunk > records_max_) return no_owner;
    const auto mine = next_chunk_.fetch_add(1, std::memory_order_relaxed) * chunk + 1;
    // Others may have taken what was left; the number is then beyond the end for ever.
    if (mine + chunk > records_max_) {
      next_chunk_.fetch_sub(1, std::memory_order_relaxed);
      return no_owner;
    }
    in.fresh = static_cast<owner_index>(mine);
    in.fresh_end = in.fresh + chunk;
  }
  return in.fresh++;
}

void directory_table::grow(shard& in) noexcept {
  const auto count = in.chains.load(std::memory_order_relaxed);
  if (in.records <= count || count == chains_max_) return;
  // The new chain takes its records from the one that has its number without the highest bit.
  const auto base = first_chain(static_cast<std::uint32_t>(&in - shards_.data()));
  auto& from = heads_[base + (count - std::bit_ceil(count + 1) / 2)];
  auto& to = heads_[base + count];
  in.chains.store(count + 1, std::memory_order_relaxed);
  owner_index stay = no_owner;
  owner_index move = no_owner;
  for (auto at = from.load(std::memory_order_relaxed); at != no_owner;) {
    const auto next = records_[at].next_in_chain;
    auto& list = chain_number(in, records_[at].key) == count ? move : stay;
    records_[at].next_in_chain = list;
    list = at;
    at = next;
  }
  from.store(stay, std::memory_order_relaxed);
  to.store(move, std::memory_order_relaxed);
}

void directory_table::append(owner_index at) noexcept {
  auto& record = records_[at];
  const auto bucket = directory_digest::bucket_of(record.key);
  auto& lists = lists_[record.session];
  const auto last = lists.newest[bucket];
  record.older = last;
  record.newer = no_owner;
  (last == no_owner ? lists.oldest[bucket] : records_[last].newer) = at;
  lists.newest[bucket] = at;
}

void directory_table::detach(owner_index at) noexcept {
  const auto& record = records_[at];
  const auto bucket = directory_digest::bucket_of(record.key);
  auto& lists = lists_[record.session];
  (record.older == no_owner ? lists.oldest[bucket] : records_[record.older].newer) = record.newer;
  (record.newer == no_owner ? lists.newest[bucket] : records_[record.newer].older) = record.older;
}

void directory_table::clear_session(session_index session) noexcept {
  lists_[session].confirmed.fill(0);
}

}  // namespace kvd
