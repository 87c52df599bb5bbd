#pragma once
// Query leases: 16 unguessable bytes that keep the blocks of an answer in place until they are
// loaded by every worker, released, expired, or their instance is gone.
//
//   grant() -> redeem() by each of `consumers` workers, the last one ends it
//           -> release(), expiry or drop_instance() end it at once
//
// The id carries its place in the table, a generation and 8 random bytes, so a look-up is one
// comparison and a used-up id never matches again. Threads: any; one lock, held per request, not
// per block. No call allocates once the block lists have grown.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"

namespace kvd {

using lease_id = std::array<char, 16>;

class lease_table {
public:
  // The references outlive the table.
  lease_table(block_store& store, const clock& time, random_source& random, store_metrics& metrics,
              duration ttl);
  ~lease_table();
  lease_table(const lease_table&) = delete;
  lease_table& operator=(const lease_table&) = delete;

  // Takes over one pin on each of `blocks`. limit_exceeded when limits::leases_max are live; the
  // pins are the caller's still, then. REQUIRES: blocks not empty, all of scope `in`, consumers >
  // 0.
  result<lease_id> grant(std::uint64_t instance, scope_id in, std::uint32_t consumers,
                         std::span<const block_index> blocks);
  // One worker takes its copy: appends the blocks to `out`, with a pin on each that is the
  // caller's. lease_missing: unknown, expired or used up. invalid_argument: another instance's
  // lease.
  result<scope_id> redeem(std::string_view id, std::uint64_t instance,
                          std::vector<block_index>& out);
  // Ends it, whoever still meant to load. lease_missing when there is none.
  result<void> release(std::string_view id);
  void drop_instance(std::uint64_t instance);
  // Ends all leases whose time is over; returns how many.
  std::size_t expire();
  void drop_all();

private:
  struct lease {
    lease_id id{};
    std::uint64_t instance = 0;
    scope_id in = 0;
    std::uint32_t consumers = 0;  // 0: not live
    std::uint32_t generation = 0;
    time_point expires{};
    std::vector<block_index> blocks;
  };
  lease* find(std::string_view id);  // REQUIRES: mutex_ is held
  void end(lease& over);             // REQUIRES: mutex_ is held
  lease* take_free();                // REQUIRES: mutex_ is held

  block_store& store_;
  const clock& clock_;
  random_source& random_;
  store_metrics& metrics_;
  const duration ttl_;
  std::mutex mutex_;                            // short: pins move by the list, not one by one
  std::vector<std::unique_ptr<lease>> leases_;  // GUARDED_BY(mutex_)
  std::vector<std::uint32_t> free_;             // GUARDED_BY(mutex_)
};

}  // namespace kvd
