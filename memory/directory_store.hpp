#pragma once
// The directory in this process' memory: directory_table's records and directory_sessions, put
// together. See memory/directory.hpp for the contract.
//
// Time to live: a record ages from its registration, or from when its bucket was last confirmed by
// compare(), whichever is later. Confirming is one number a bucket, however many blocks it has.
//
// No call holds a lock for more than `records_a_hold` records, so that queries go on meanwhile.
// Threads: any; upkeep() and begin_sweep() one thread. After start, only answers allocate.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "memory/directory.hpp"
#include "memory/directory_sessions.hpp"
#include "memory/directory_table.hpp"

namespace kvd {

class directory_store final : public directory {
public:
  struct options {
    std::uint64_t owners_max = 0;
    duration stale_after = std::chrono::seconds(30);
    duration ttl = std::chrono::minutes(120);
    std::uint64_t seed = 0;
    std::string id;
  };
  // Records that are handled under one lock: some tens of microseconds.
  static constexpr std::uint32_t records_a_hold = 128;
  // Of one upkeep() call, about a millisecond.
  static constexpr std::uint32_t records_a_slice = 2048;

  directory_store(options how, const clock& time);

  bool blocking() const noexcept override { return false; }
  const std::string& id() const noexcept override { return options_.id; }
  result<void> heartbeat(const node_session& from) override;
  result<std::uint64_t> unregister(const node_session& from) override;
  result<inserted_blocks> insert(const node_session& from, std::string_view name_space,
                                 block_hashes hashes) override;
  result<std::uint64_t> remove(const node_session& from, std::string_view name_space,
                               block_hashes hashes) override;
  result<std::vector<node_prefix>> query_prefix(std::string_view name_space,
                                                block_hashes hashes) override;
  result<located_blocks> locate(std::string_view name_space, block_hashes hashes,
                                std::string_view except, bool over_gaps) override;
  result<std::vector<std::uint32_t>> compare(const node_session& from,
                                             std::span<const std::uint64_t> digests) override;
  result<replaced_blocks> replace(const node_session& from, std::span<const std::uint32_t> buckets,
                                  std::span<const namespace_blocks> blocks) override;
  bool upkeep() override;
  void begin_sweep() override;
  result<purged_nodes> purge_stale() override;
  std::vector<directory_node> nodes() const override { return sessions_.list(); }
  directory_usage usage() const override;

private:
  using use = directory_sessions::use;
  enum class sweep_phase : std::uint8_t { none, ages, redundancy };

  static result<void> check_hashes(block_hashes hashes);
  result<use> find(const node_session& from);
  std::uint32_t now_seconds() const noexcept;
  error full_error(std::uint64_t refused) noexcept;
  std::uint64_t drop_before_round(session_index session, std::uint32_t bucket, std::uint32_t round);
  void forget(session_index session, std::uint64_t owners) noexcept;

  // Each does a slice, and says how much of its budget it used.
  std::uint32_t reclaim(std::uint32_t budget);
  std::uint32_t sweep_ages(std::uint32_t budget);
  std::uint32_t count_redundancy(std::uint32_t budget);
  void end_sweep();

  const options options_;
  const clock& clock_;
  const time_point born_;
  directory_sessions sessions_;
  directory_table table_;
  std::atomic<std::uint64_t> refused_{0};

  // Where upkeep() is; its thread's own.
  std::vector<bool> silent_;  // sessions that a sweep ended
  std::uint32_t reclaim_bucket_ = 0;
  session_index reclaim_session_ = 0;
  sweep_phase phase_ = sweep_phase::none;
  session_index sweep_session_ = 0;
  std::uint32_t sweep_bucket_ = 0;
  std::uint32_t sweep_shard_ = 0;
  std::uint32_t sweep_chain_ = 0;
  std::array<std::uint64_t, 4> counting_{};
  std::uint64_t counted_owners_ = 0;

  mutable std::mutex swept_mutex_;
  directory_usage swept_;  // GUARDED_BY(swept_mutex_): what the last sweeps found
};

}  // namespace kvd
