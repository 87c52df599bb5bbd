#pragma once
// Every number that the server role counts, by the part that updates it. PegaFlow's names for them,
// and what each is for, are in actors/metrics.cpp.

#include <array>

#include "core/metric.hpp"
#include "core/peer_metrics.hpp"

namespace kvd {

// Bucket bounds are PegaFlow's, so that its dashboards draw the same curves.
namespace bounds {
inline constexpr double residence_seconds[] = {1,   5,    10,   30,   60,    120,   300,
                                               600, 1800, 3600, 7200, 21600, 43200, 86400};
inline constexpr double copy_seconds[] = {.01, .025, .05, .1,  .25, .5, 1,  1.5,
                                          2,   3,    5,   7.5, 10,  15, 30, 60};
inline constexpr double ssd_bytes_per_second[] = {
    1e9,  2e9,  3e9,  4e9,  5e9,  6e9,  7e9,  8e9,  9e9,  10e9, 11e9, 12e9, 13e9, 14e9,
    15e9, 16e9, 17e9, 18e9, 19e9, 20e9, 21e9, 22e9, 23e9, 24e9, 25e9, 26e9, 27e9, 28e9,
    29e9, 30e9, 31e9, 32e9, 33e9, 34e9, 35e9, 36e9, 37e9, 38e9, 39e9, 40e9};
inline constexpr double fetch_seconds[] = {.01, .02, .05, .1, .2, .5, 1, 2};
inline constexpr double rpc_seconds[] = {.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2};
}  // namespace bounds

// memory/block_store: blocks, leases, eviction.
struct store_metrics {
  gauge resident_bytes;         // sealed bytes in RAM
  gauge resident_blocks;        // sealed blocks in RAM
  gauge reclaimable_blocks;     // hints that others hold copies; some of these blocks are gone
  gauge inflight_bytes;         // bytes of blocks that wait for more slots
  gauge leases;                 // live query leases
  gauge leased_blocks;          // block references that leases hold
  gauge pinned_bytes;           // bytes of blocks that cannot be evicted now
  counter inflight_gc_cleaned;  // unsealed blocks dropped by age
  counter block_hits;           // of Ready group-0 and exact queries
  counter block_misses;
  counter tier_ram;  // attribution of queried blocks: these four sum up to all
  counter tier_ssd;
  counter tier_peer;
  counter tier_miss;
  counter insertions;
  counter admission_rejections;
  counter evictions_pressure;
  counter evictions_cleanup;
  counter evictions_still_referenced;
  counter eviction_reclaimed_bytes;
  counter alloc_failures;       // a slot could not be had even after eviction
  counter save_blocks_dropped;  // blocks of a Save left out because the pool was full
  counter save_blocks_present;  // blocks of a Save that were already stored
  counter layout_mismatches;    // same hash, other layout: answered as a miss
  counter lease_expirations;
  counter slabs_moved;  // slabs that changed size class
  histogram residence_pressure{bounds::residence_seconds};
  histogram residence_cleanup{bounds::residence_seconds};
};

// transport/device: copies between engine memory and the pool.
struct copy_metrics {
  counter save_bytes;
  counter load_bytes;
  counter load_failures;
  counter load_cancelled;  // dropped before their end: client gone, flag unlinked, deadline
  counter save_failures;
  gauge save_queue;  // jobs that wait for a copy thread
  gauge load_queue;
  gauge inflight;  // jobs being copied
  histogram save_seconds{bounds::copy_seconds};
  histogram load_seconds{bounds::copy_seconds};
};

// storage: the SSD tier.
struct ssd_metrics {
  counter write_bytes;
  counter write_failures;         // blocks
  counter write_queue_full;       // blocks left out because the queue was full
  counter write_skipped_evicted;  // blocks that were evicted before their turn
  gauge write_queue;              // blocks
  gauge writes_inflight;          // blocks
  counter read_bytes;
  counter reads_done;     // blocks
  counter read_failures;  // blocks
  counter corrupt;        // blocks whose checksum or identity was wrong
  gauge reads_inflight;   // blocks
  counter fetch_queue_full;
  counter fetch_blocks_refused;  // over --max-prefetch-blocks
  gauge up;                      // 1: on, 0: switched off by an error
  counter switched_off;
  counter thread_failures;
  counter fetches_idle;  // given up because nobody asked again
  gauge registered_buffers;
  counter operations;        // reads and writes that the kernel was asked for
  counter fixed_operations;  // of those, in registered buffers
  histogram write_rate{bounds::ssd_bytes_per_second};
  histogram read_rate{bounds::ssd_bytes_per_second};
  histogram write_seconds{bounds::copy_seconds};
  histogram read_seconds{bounds::copy_seconds};
};

// Blocks that nodes share: what is announced to metaservers, locked for peers, fetched from them.
struct sharing_metrics {
  // By kind of call to a metaserver.
  struct calls {
    counter blocks;      // told and taken
    counter failures;    // calls
    counter queue_full;  // blocks that were not told at once; the next comparison finds them
  };
  calls inserts;
  calls removals;
  counter heartbeat_failures;
  counter session_resets;  // a metaserver made this node start over
  counter farewell_failures;
  counter comparisons;     // with what a metaserver knows
  counter buckets_mended;  // that differed
  counter feed_lost;       // times that the store had to be looked through
  gauge announced_blocks;  // that others should know of
  gauge queued_blocks;     // announcements under way or waiting, over all metaservers
  gauge directories_up;    // metaservers that answer
  gauge locked_blocks;     // that other nodes are reading
  counter lock_timeouts;   // sessions that were never closed
  counter locates;         // look-ups at a metaserver for a query
  counter locate_failures;
  counter fetches_ok;  // reads from one peer, for one query
  counter fetches_failed;
  counter fetched_blocks;
  counter fetched_bytes;
  counter late_blocks;  // that came after their lock was over, and were thrown away
  histogram fetch_seconds_ok{bounds::fetch_seconds};
  histogram fetch_seconds_failed{bounds::fetch_seconds};
};

// transport/grpc: every unary method. Order is engine_method's.
enum class engine_method : std::uint8_t {
  register_context_batch,
  save,
  load,
  query_prefetch,
  release,
  unregister_context,
  query_blocks_for_transfer,
  release_transfer_lock,
  rdma_handshake,
  shutdown,
  health,
  count
};
struct rpc_metrics {
  static constexpr std::size_t methods = static_cast<std::size_t>(engine_method::count);
  static constexpr std::size_t statuses = 17;  // gRPC status codes 0..16
  std::array<std::array<counter, statuses>, methods> requests;
  // One histogram a method and outcome (ok, error): status codes beyond that do not earn a series.
  struct by_outcome {
    histogram ok{bounds::rpc_seconds};
    histogram error{bounds::rpc_seconds};
  };
  std::array<by_outcome, methods> seconds;
};

// actors: instances and sessions.
struct control_metrics {
  gauge instances;
  gauge sessions;
  counter sessions_lost;  // streams that ended while their instance was registered
  counter slow_tasks;     // handlers that kept their actor busy for seconds
  counter task_failures;  // handlers of background actors that failed
};

struct server_metrics {
  store_metrics store;
  copy_metrics copy;
  ssd_metrics ssd;
  sharing_metrics sharing;
  peer_metrics peers;
  rpc_metrics rpc;
  control_metrics control;
};

}  // namespace kvd
