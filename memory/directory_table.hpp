#pragma once
// The records of the directory: one for each (block, session). Hash chains by block, age-ordered
// lists by session.
//
//   key --> shard (6 bits) --> chain of linear hashing --> record, record, ...
//   session --> 1024 lists, one a bucket of directory_digest, oldest record first
//
// A block with several owners is several records with one key, in one chain: there is no second
// kind of record. A bucket lies in one shard, so the lists of a session are guarded by the shard's
// lock as well, and everything about a block happens under one lock.
//
// Growth: a chain array grows by one chain an insert (Litwin 1980), which moves the records of one
// chain; nothing is ever rebuilt. Its address space is reserved, so it never moves.
//
// Memory: a record has 40 bytes and 4 for its chain. A session has 20 KiB for its lists.
// Threads: any; the caller holds the lock of the shard it works in.

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "core/limits.hpp"
#include "memory/directory_digest.hpp"
#include "memory/reserved_array.hpp"

namespace kvd {

using session_index = std::uint32_t;
using owner_index = std::uint32_t;
inline constexpr owner_index no_owner = 0;

struct owner_record {
  directory_key key;
  owner_index next_in_chain;  // or in the free list
  owner_index newer;          // in the session's list of this bucket
  owner_index older;
  session_index session;
  std::uint32_t since;  // seconds of the directory's life at which it was registered
  std::uint32_t round;  // the session's round of replacing when it was registered
};
static_assert(sizeof(owner_record) == 40);

class directory_table {
public:
  static constexpr std::uint32_t shard_count = 64;
  static constexpr std::uint32_t buckets_per_shard = directory_digest::bucket_count / shard_count;

  enum class put_outcome : std::uint8_t { added, refreshed, full };
  struct dropped {
    std::uint32_t owners = 0;
    std::uint32_t keys = 0;  // of these, the last ones of their key
  };

  // `seed` keeps chains unpredictable.
  directory_table(std::uint64_t owners_max, std::uint64_t seed);

  static std::uint32_t shard_of(const directory_key& key) noexcept {
    return directory_digest::bucket_of(key) / buckets_per_shard;
  }
  std::mutex& lock_of(const directory_key& key) noexcept { return shards_[shard_of(key)].mutex; }
  std::mutex& lock_of_bucket(std::uint32_t bucket) noexcept {
    return shards_[bucket / buckets_per_shard].mutex;
  }

  // Room for `count` records, taken before they are put and given back afterwards as far as they
  // were not added. False: there is less.
  bool reserve(std::uint64_t count) noexcept;
  void give_back(std::uint64_t count) noexcept;
  std::uint64_t owners() const noexcept { return owners_.load(std::memory_order_relaxed); }
  std::uint64_t owners_max() const noexcept { return owners_max_; }
  std::uint64_t keys() const noexcept;
  // Of records and chains; without the lists of sessions.
  std::uint64_t memory_bytes() const noexcept;
  static constexpr std::uint64_t bytes_of_session() noexcept { return sizeof(session_lists); }

  // Asks for cache lines ahead of the next two; no lock needed. First the chain, then its record.
  void prefetch_chain(const directory_key& key) const noexcept;
  void prefetch_record(const directory_key& key) const noexcept;

  // REQUIRES for all below: the lock of the shard is held.

  // Calls visit(session_index) for each owner.
  template<class Visit>
  void for_owners(const directory_key& key, Visit&& visit) const {
    const auto& in = shards_[shard_of(key)];
    auto at = chain(in, key).load(std::memory_order_relaxed);
    for (; at != no_owner; at = records_[at].next_in_chain) {
      if (records_[at].key == key) visit(records_[at].session);
    }
  }
  // Makes the record the newest of its list. Room was reserved for it.
  put_outcome put(const directory_key& key, session_index session, std::uint32_t since,
                  std::uint32_t round) noexcept;
  // Room is given back by the caller, here and below.
  dropped drop(const directory_key& key, session_index session) noexcept;
  // From the oldest on, at most `limit`, while `gone(record)` holds.
  template<class Gone>
  dropped drop_oldest(session_index session, std::uint32_t bucket, std::uint32_t limit,
                      Gone&& gone) noexcept {
    dropped total;
    auto& lists = lists_[session];
    while (total.owners < limit) {
      const auto at = lists.oldest[bucket];
      if (at == no_owner || !gone(records_[at])) break;
      // The neighbour is needed next; its line arrives while this one is taken out.
      prefetch(records_[at].newer);
      total.keys += unlink(at) ? 1 : 0;
      ++total.owners;
    }
    return total;
  }
  std::uint64_t digest(session_index session, std::uint32_t bucket) const noexcept {
    return lists_[session].sums[bucket];
  }
  std::uint32_t confirmed(session_index session, std::uint32_t bucket) const noexcept {
    return lists_[session].confirmed[bucket];
  }
  void confirm(session_index session, std::uint32_t bucket, std::uint32_t now) noexcept {
    lists_[session].confirmed[bucket] = now;
  }
  // Chains of a shard, and the sessions of each key of one of them, a key at a time.
  std::uint32_t chains(std::uint32_t of_shard) const noexcept {
    return shards_[of_shard].chains.load(std::memory_order_relaxed);
  }
  template<class Visit>
  void for_keys_of_chain(std::uint32_t of_shard, std::uint32_t number, Visit&& visit) const {
    const auto first = heads_[first_chain(of_shard) + number].load(std::memory_order_relaxed);
    for (auto at = first; at != no_owner; at = records_[at].next_in_chain) {
      // Only at the first record of a key.
      auto before = first;
      while (!(records_[before].key == records_[at].key))
        before = records_[before].next_in_chain;
      if (before == at) visit(records_[at].key);
    }
  }
  // Forgets when buckets were confirmed. REQUIRES: the session has no record; all locks, or nobody
  // knows the session.
  void clear_session(session_index session) noexcept;

private:
  static constexpr std::uint32_t chunk = 1024;  // records that a shard takes at once

  struct alignas(64) shard {
    std::mutex mutex;
    std::atomic<std::uint32_t> chains{0};
    owner_index free = no_owner;  // GUARDED_BY(mutex)
    owner_index fresh = 0;        // GUARDED_BY(mutex): next of the chunk
    owner_index fresh_end = 0;    // GUARDED_BY(mutex)
    std::uint32_t records = 0;    // GUARDED_BY(mutex)
    std::atomic<std::uint64_t> keys{0};
  };
  // By bucket of directory_digest; all zero is empty.
  struct session_lists {
    std::array<owner_index, directory_digest::bucket_count> oldest;
    std::array<owner_index, directory_digest::bucket_count> newest;
    std::array<std::uint64_t, directory_digest::bucket_count> sums;
    std::array<std::uint32_t, directory_digest::bucket_count> confirmed;
  };
  using head = std::atomic<owner_index>;

  std::uint64_t first_chain(std::uint32_t of_shard) const noexcept {
    return std::uint64_t{of_shard} * chains_max_;
  }
  std::uint32_t spread(const directory_key& key) const noexcept {
    return static_cast<std::uint32_t>(((key.low ^ seed_) * 0x9e3779b97f4a7c15U) >> 32);
  }
  std::uint32_t chain_number(const shard& in, const directory_key& key) const noexcept;
  const head& chain(const shard& in, const directory_key& key) const noexcept;
  head& chain(const shard& in, const directory_key& key) noexcept {
    return const_cast<head&>(std::as_const(*this).chain(in, key));
  }
  void prefetch(owner_index at) const noexcept { __builtin_prefetch(&records_[at]); }
  owner_index take_record(shard& in) noexcept;
  void grow(shard& in) noexcept;
  void append(owner_index at) noexcept;
  void detach(owner_index at) noexcept;
  // Takes the record out of everything and frees it; true when it was the last of its key.
  bool unlink(owner_index at) noexcept;

  std::uint64_t owners_max_;
  std::uint64_t records_max_;
  std::uint32_t chains_max_;  // of a shard
  std::uint64_t seed_;
  std::vector<shard> shards_;
  reserved_array<owner_record> records_;
  reserved_array<head> heads_;
  reserved_array<session_lists> lists_;
  std::atomic<std::uint64_t> owners_{0};
  std::atomic<std::uint64_t> next_chunk_{0};
};

}  // namespace kvd
