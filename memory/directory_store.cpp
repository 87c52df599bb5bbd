#include "memory/directory_store.hpp"

#include <algorithm>
#include <bitset>

#include <fmt/format.h>

namespace kvd {

namespace {

// Keys whose memory is asked for together, before the first of them is looked at.
constexpr std::size_t window = 64;

// Room in the table for the records of one request, taken some at a time.
class room {
public:
  room(directory_table& table, std::size_t at_most) : table_(table), wanted_(at_most) {}
  ~room() { table_.give_back(left_); }
  room(const room&) = delete;
  room& operator=(const room&) = delete;
  bool take() noexcept {
    if (left_ == 0) {
      const auto step = std::min<std::uint64_t>(wanted_, window);
      left_ = table_.reserve(step) ? step : table_.reserve(1) ? 1 : 0;
    }
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  void put_back() noexcept { ++left_; }

private:
  directory_table& table_;
  std::uint64_t wanted_;
  std::uint64_t left_ = 0;
};

enum class put_result { added, refreshed, full };

// REQUIRES: the lock of the key's shard is held.
put_result put(directory_table& table, room& free, const directory_key& key, session_index session,
               std::uint32_t since, std::uint32_t round) {
  if (!free.take()) {
    // A block that is known needs no room.
    bool known = false;
    table.for_owners(key, [&](session_index owner) { known = known || owner == session; });
    if (!known) return put_result::full;
    table.put(key, session, since, round);
    return put_result::refreshed;
  }
  const auto outcome = table.put(key, session, since, round);
  if (outcome == directory_table::put_outcome::added) return put_result::added;
  free.put_back();
  return outcome == directory_table::put_outcome::full ? put_result::full : put_result::refreshed;
}

void prefetch(const directory_table& table, std::span<const directory_key> keys) {
  for (const auto& key : keys)
    table.prefetch_chain(key);
  for (const auto& key : keys)
    table.prefetch_record(key);
}

// Calls each(position, key) for all hashes, a window at a time.
template<class Each>
void for_keys(const directory_table& table, std::string_view name_space, block_hashes hashes,
              Each&& each) {
  const directory_namespace in(name_space);
  std::array<directory_key, window> keys;
  for (std::size_t first = 0; first < hashes.size(); first += window) {
    const auto count = std::min(window, hashes.size() - first);
    for (std::size_t i = 0; i < count; ++i)
      keys[i] = in.key_of(*hashes[first + i]);
    prefetch(table, {keys.data(), count});
    for (std::size_t i = 0; i < count; ++i)
      each(first + i, keys[i]);
  }
}

}  // namespace

directory_store::directory_store(options how, const clock& time)
    : options_(std::move(how)), clock_(time), born_(time.now()),
      sessions_(time, options_.stale_after), table_(options_.owners_max, options_.seed),
      silent_(limits::directory_nodes_max) {}

std::uint32_t directory_store::now_seconds() const noexcept {
  // From 1 on: 0 says never.
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(clock_.now() - born_);
  return static_cast<std::uint32_t>(age.count()) + 1;
}

result<void> directory_store::check_hashes(block_hashes hashes) {
  if (hashes.size() > limits::hashes_per_query_max) {
    return fail(errc::invalid_argument, fmt::format("{} block_hashes, limit {}", hashes.size(),
                                                    limits::hashes_per_query_max));
  }
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i]->size() <= limits::directory_hash_bytes_max) continue;
    return fail(errc::invalid_argument,
                fmt::format("block_hashes[{}] has {} bytes, limit {}", i, hashes[i]->size(),
                            limits::directory_hash_bytes_max));
  }
  return {};
}

result<directory_sessions::use> directory_store::find(const node_session& from) {
  const auto id = parse_uuid(from.node_id);
  if (!id) return tl::unexpected(id.error());
  return sessions_.find(from.node, *id);
}

error directory_store::full_error(std::uint64_t refused) noexcept {
  refused_.fetch_add(refused, std::memory_order_relaxed);
  return {errc::limit_exceeded,
          fmt::format("the directory is full: no room for {} of the blocks; limit {} "
                      "(block, node) records (--max-entries)",
                      refused, table_.owners_max())};
}

void directory_store::forget(session_index session, std::uint64_t owners) noexcept {
  table_.give_back(owners);
  sessions_.count_owners(session, -static_cast<std::int64_t>(owners));
}

result<void> directory_store::heartbeat(const node_session& from) {
  const auto id = parse_uuid(from.node_id);
  if (!id) return tl::unexpected(id.error());
  return sessions_.heartbeat(from.node, *id);
}

result<std::uint64_t> directory_store::unregister(const node_session& from) {
  const auto session = find(from);
  if (!session) return tl::unexpected(session.error());
  const auto owners = sessions_.owners(session->index());
  sessions_.leave(session->index());
  return owners;
}

result<inserted_blocks> directory_store::insert(const node_session& from,
                                                std::string_view name_space, block_hashes hashes) {
  if (auto valid = check_hashes(hashes); !valid) return tl::unexpected(valid.error());
  const auto session = find(from);
  if (!session) return tl::unexpected(session.error());
  const auto self = session->index();
  const auto round = sessions_.round(self);
  const auto since = now_seconds();
  const auto now = clock_.now();
  inserted_blocks out;
  std::uint64_t full = 0;
  room free(table_, hashes.size());
  for_keys(table_, name_space, hashes, [&](std::size_t at, const directory_key& key) {
    const std::lock_guard lock(table_.lock_of(key));
    const auto outcome = put(table_, free, key, self, since, round);
    if (outcome == put_result::full) ++full;
    if (outcome != put_result::added) return;
    ++out.added;
    unsigned visible = 0;
    table_.for_owners(key, [&](session_index owner) {
      if (owner == self || sessions_.visible(owner, now)) ++visible;
    });
    if (visible >= 3) out.reclaimable.push_back(static_cast<std::uint32_t>(at));
  });
  sessions_.count_owners(self, static_cast<std::int64_t>(out.added));
  if (full > 0) return tl::unexpected(full_error(full));
  return out;
}

result<std::uint64_t> directory_store::remove(const node_session& from, std::string_view name_space,
                                              block_hashes hashes) {
  if (auto valid = check_hashes(hashes); !valid) return tl::unexpected(valid.error());
  const auto session = find(from);
  if (!session) return tl::unexpected(session.error());
  std::uint64_t removed = 0;
  for_keys(table_, name_space, hashes, [&](std::size_t, const directory_key& key) {
    const std::lock_guard lock(table_.lock_of(key));
    removed += table_.drop(key, session->index()).owners;
  });
  forget(session->index(), removed);
  return removed;
}

result<std::vector<std::uint32_t>>
directory_store::compare(const node_session& from, std::span<const std::uint64_t> digests) {
  if (digests.size() != directory_digest::bucket_count) {
    return fail(errc::invalid_argument,
                fmt::format("{} digests; exactly {} are needed", digests.size(),
                            directory_digest::bucket_count));
  }
  const auto session = find(from);
  if (!session) return tl::unexpected(session.error());
  const auto now = now_seconds();
  std::vector<std::uint32_t> differing;
  constexpr auto step = directory_table::buckets_per_shard;
  for (std::uint32_t first = 0; first < digests.size(); first += step) {
    const std::lock_guard lock(table_.lock_of_bucket(first));
    for (auto bucket = first; bucket < first + step; ++bucket) {
      if (table_.digest(session->index(), bucket) == digests[bucket]) {
        table_.confirm(session->index(), bucket, now);
      } else {
        differing.push_back(bucket);
      }
    }
  }
  return differing;
}

namespace {

using bucket_set = std::bitset<directory_digest::bucket_count>;

result<bucket_set> set_of(std::span<const std::uint32_t> buckets) {
  bucket_set out;
  for (const auto each : buckets) {
    if (each >= out.size()) {
      return fail(errc::invalid_argument,
                  fmt::format("bucket {} does not exist; there are {}", each, out.size()));
    }
    out.set(each);
  }
  return out;
}

// Each key once, those of a bucket side by side.
result<std::vector<directory_key>> keys_within(const bucket_set& buckets,
                                               std::span<const namespace_blocks> blocks) {
  std::vector<directory_key> keys;
  for (const auto& part : blocks) {
    const directory_namespace in(part.name_space);
    for (std::size_t i = 0; i < part.hashes.size(); ++i) {
      keys.push_back(in.key_of(*part.hashes[i]));
      const auto bucket = directory_digest::bucket_of(keys.back());
      if (buckets.test(bucket)) continue;
      return fail(errc::invalid_argument,
                  fmt::format("block_hashes[{}] of a namespace lies in bucket {}, which is none of "
                              "those to replace",
                              i, bucket));
    }
  }
  std::ranges::sort(keys, {}, [](const directory_key& k) { return std::pair(k.high, k.low); });
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

}  // namespace

result<replaced_blocks> directory_store::replace(const node_session& from,
                                                 std::span<const std::uint32_t> buckets,
                                                 std::span<const namespace_blocks> blocks) {
  for (const auto& part : blocks) {
    if (auto valid = check_hashes(part.hashes); !valid) return tl::unexpected(valid.error());
  }
  const auto chosen = set_of(buckets);
  if (!chosen) return tl::unexpected(chosen.error());
  const auto keys = keys_within(*chosen, blocks);
  if (!keys) return tl::unexpected(keys.error());
  const auto session = find(from);
  if (!session) return tl::unexpected(session.error());

  // What stays becomes the newest of its list with the round of now. What is then left at the old
  // end, with another round, goes.
  const auto self = session->index();
  const auto round = sessions_.next_round(self);
  const auto since = now_seconds();
  replaced_blocks out;
  std::uint64_t full = 0;
  {
    room free(table_, keys->size());
    for (std::size_t first = 0; first < keys->size(); first += window) {
      const auto part = std::span(*keys).subspan(first, std::min(window, keys->size() - first));
      prefetch(table_, part);
      for (const auto& key : part) {
        const std::lock_guard lock(table_.lock_of(key));
        const auto outcome = put(table_, free, key, self, since, round);
        out.inserted += outcome == put_result::added ? 1 : 0;
        full += outcome == put_result::full ? 1 : 0;
      }
    }
  }
  sessions_.count_owners(self, static_cast<std::int64_t>(out.inserted));
  for (std::uint32_t bucket = 0; bucket < chosen->size(); ++bucket) {
    if (chosen->test(bucket)) out.removed += drop_before_round(self, bucket, round);
  }
  if (full > 0) return tl::unexpected(full_error(full));
  return out;
}

std::uint64_t directory_store::drop_before_round(session_index session, std::uint32_t bucket,
                                                 std::uint32_t round) {
  std::uint64_t total = 0;
  std::uint32_t now = 0;
  do {
    const std::lock_guard lock(table_.lock_of_bucket(bucket));
    now = table_
              .drop_oldest(session, bucket, records_a_hold,
                           [round](const owner_record& r) { return r.round != round; })
              .owners;
    total += now;
  } while (now == records_a_hold);
  forget(session, total);
  return total;
}

}  // namespace kvd
