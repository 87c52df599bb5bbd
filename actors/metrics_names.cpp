#include "actors/metrics_names.hpp"

#include <array>

namespace kvd::names {

namespace {

template<auto Part, auto... Members>
double read_number(const server_metrics& from) {
  return static_cast<double>(((from.*Part).*....*Members).value());
}

double read_evictions(const server_metrics& from) {
  return static_cast<double>(from.store.evictions_pressure.value() +
                             from.store.evictions_cleanup.value());
}

constexpr number_row number_rows[] = {
    {"pegaflow_pool_alloc_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::alloc_failures>,
     "pegaflow_pool_alloc_failures", "",
     "Slots that could not be had even after eviction: the pool is too small for what is pinned."},
    {"pegaflow_inflight_bytes", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::inflight_bytes>,
     "pegaflow_inflight_bytes", "bytes",
     "Bytes of blocks that wait for the slots of other workers; if it only grows, a rank is "
     "missing."},
    {"pegaflow_inflight_gc_cleaned_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::inflight_gc_cleaned>,
     "pegaflow_inflight_gc_cleaned", "",
     "Unsealed blocks dropped by age: a worker of their instance stopped saving."},
    {"pegaflow_prefetch_stale_gc_total_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::fetches_idle>,
     "pegaflow_prefetch_stale_gc_total", "",
     "Prefetches that nobody polled to their end (0 without an SSD tier or peers)."},
    {"pegaflow_prefetch_stale_gc_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::fetches_idle>, nullptr, "",
     "Alias of pegaflow_prefetch_stale_gc_total_total, for published dashboards."},
    {"pegaflow_cache_resident_bytes", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::resident_bytes>,
     "pegaflow_cache_resident_bytes", "bytes",
     "Bytes of sealed blocks in RAM: how much of the pool is cache."},
    {"pegaflow_cache_resident_blocks", kind::gauge, "class", "reclaimable", nullptr,
     "pegaflow_cache_resident_blocks", "blocks",
     "Sealed blocks in RAM, by replacement class: how full the cache is, in blocks."},
    {"pegaflow_cache_resident_blocks", kind::gauge, "class", "retained",
     &read_number<&server_metrics::store, &store_metrics::resident_blocks>,
     "pegaflow_cache_resident_blocks", "blocks",
     "Sealed blocks in RAM, by replacement class: how full the cache is, in blocks."},
    {"pegaflow_cache_block_hits_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::block_hits>, "pegaflow_cache_block_hits",
     "", "Queried blocks that were in RAM; kept for old dashboards, see the tier series."},
    {"pegaflow_cache_block_misses_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::block_misses>,
     "pegaflow_cache_block_misses", "",
     "Queried blocks that were not in RAM; kept for old dashboards, see the tier series."},
    {"pegaflow_cache_tier_block_requests_total", kind::counter, "tier", "ram",
     &read_number<&server_metrics::store, &store_metrics::tier_ram>,
     "pegaflow_cache_tier_block_requests", "",
     "Queried blocks by the tier that serves them: the hit ratio, from one denominator."},
    {"pegaflow_cache_tier_block_requests_total", kind::counter, "tier", "rdma",
     &read_number<&server_metrics::store, &store_metrics::tier_peer>,
     "pegaflow_cache_tier_block_requests", "",
     "Queried blocks by the tier that serves them: the hit ratio, from one denominator."},
    {"pegaflow_cache_tier_block_requests_total", kind::counter, "tier", "ssd",
     &read_number<&server_metrics::store, &store_metrics::tier_ssd>,
     "pegaflow_cache_tier_block_requests", "",
     "Queried blocks by the tier that serves them: the hit ratio, from one denominator."},
    {"pegaflow_cache_tier_block_requests_total", kind::counter, "tier", "miss",
     &read_number<&server_metrics::store, &store_metrics::tier_miss>,
     "pegaflow_cache_tier_block_requests", "",
     "Queried blocks by the tier that serves them: the hit ratio, from one denominator."},
    {"pegaflow_cache_block_insertions_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::insertions>,
     "pegaflow_cache_block_insertions", "",
     "Blocks that became findable: what saves add to the cache."},
    {"pegaflow_cache_block_admission_rejections_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::admission_rejections>,
     "pegaflow_cache_block_admission_rejections", "",
     "Blocks that the admission filter kept out as too rarely asked for."},
    {"pegaflow_cache_block_evictions_total", kind::counter, nullptr, nullptr, &read_evictions,
     "pegaflow_cache_block_evictions", "",
     "Blocks removed, by pressure or by cleanup: set against insertions, how fast the cache turns "
     "over."},
    {"pegaflow_cache_block_evictions_by_class_total", kind::counter, "class", "reclaimable",
     nullptr, "pegaflow_cache_block_evictions_by_class", "",
     "Blocks removed by pressure, by replacement class: replicas of other nodes should go first."},
    {"pegaflow_cache_block_evictions_by_class_total", kind::counter, "class", "retained",
     &read_number<&server_metrics::store, &store_metrics::evictions_pressure>,
     "pegaflow_cache_block_evictions_by_class", "",
     "Blocks removed by pressure, by replacement class: replicas of other nodes should go first."},
    {"pegaflow_cache_block_evictions_still_referenced_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::evictions_still_referenced>,
     "pegaflow_cache_block_evictions_still_referenced", "",
     "Removed blocks that a lease or copy still held: why memory does not come back at once."},
    {"pegaflow_cache_eviction_reclaimed_bytes_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::eviction_reclaimed_bytes>,
     "pegaflow_cache_eviction_reclaimed_bytes", "bytes",
     "Bytes that evictions gave back to the pool: what evicting achieves."},
    {"pegaflow_save_bytes_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::copy, &copy_metrics::save_bytes>, "pegaflow_save_bytes", "bytes",
     "Bytes copied from engines into the pool: its rate is the save throughput."},
    {"pegaflow_load_bytes_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::copy, &copy_metrics::load_bytes>, "pegaflow_load_bytes", "bytes",
     "Bytes copied from the pool to engines: its rate is the load throughput."},
    {"pegaflow_load_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::copy, &copy_metrics::load_failures>, "pegaflow_load_failures",
     "", "Loads that ended in failure: the engine computes these tokens again."},
    {"pegaflow_ssd_write_bytes_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::write_bytes>, "pegaflow_ssd_write_bytes",
     "bytes", "Bytes written to the SSD tier. 0 without an SSD tier."},
    {"pegaflow_ssd_write_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::write_failures>,
     "pegaflow_ssd_write_failures", "",
     "Writes to the SSD tier that failed: look at the device. 0 without an SSD tier."},
    {"pegaflow_ssd_write_queue_full_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::write_queue_full>,
     "pegaflow_ssd_write_queue_full", "",
     "Blocks not written to SSD as the queue was full: the SSD is too slow. 0 without an SSD "
     "tier."},
    {"pegaflow_ssd_prefetch_bytes_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::read_bytes>, "pegaflow_ssd_prefetch_bytes",
     "bytes", "Bytes read from the SSD tier. 0 without an SSD tier."},
    {"pegaflow_ssd_prefetch_success_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::reads_done>, "pegaflow_ssd_prefetch_success",
     "", "Blocks read from SSD for a query. 0 without an SSD tier."},
    {"pegaflow_ssd_prefetch_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::read_failures>,
     "pegaflow_ssd_prefetch_failures", "",
     "Reads from SSD that failed: the query became a miss. 0 without an SSD tier."},
    {"pegaflow_ssd_prefetch_queue_full_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::fetch_queue_full>,
     "pegaflow_ssd_prefetch_queue_full", "",
     "Prefetches refused as the read queue was full: hits lost to a slow SSD. 0 without an SSD "
     "tier."},
    {"pegaflow_ssd_prefetch_backpressure_blocks_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::fetch_blocks_refused>,
     "pegaflow_ssd_prefetch_backpressure_blocks", "",
     "Blocks not prefetched as too many were on their way: hits lost to the bound. 0 without an "
     "SSD tier."},
    {"pegaflow_ssd_write_queue_pending", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::write_queue>,
     "pegaflow_ssd_write_queue_pending", "blocks",
     "Blocks that wait to be written to SSD. 0 without an SSD tier."},
    {"pegaflow_ssd_write_inflight", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::writes_inflight>,
     "pegaflow_ssd_write_inflight", "blocks",
     "Blocks being written to SSD. 0 without an SSD tier."},
    {"pegaflow_ssd_prefetch_inflight", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::reads_inflight>,
     "pegaflow_ssd_prefetch_inflight", "blocks",
     "Blocks being read from SSD. 0 without an SSD tier."},
    {"pegaflow_metaserver_registration_blocks_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::inserts,
                  &sharing_metrics::calls::blocks>,
     "pegaflow_metaserver_registration_blocks", "",
     "Blocks told to the metaserver. 0 without one."},
    {"pegaflow_metaserver_registration_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::inserts,
                  &sharing_metrics::calls::failures>,
     "pegaflow_metaserver_registration_failures", "",
     "Calls to the metaserver that failed, of this kind: peers see an old picture. 0 without one."},
    {"pegaflow_metaserver_registration_queue_full_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::inserts,
                  &sharing_metrics::calls::queue_full>,
     "pegaflow_metaserver_registration_queue_full", "",
     "Blocks not told to the metaserver as the queue was full. 0 without one."},
    {"pegaflow_metaserver_removal_blocks_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::removals,
                  &sharing_metrics::calls::blocks>,
     "pegaflow_metaserver_removal_blocks", "",
     "Blocks withdrawn from the metaserver. 0 without one."},
    {"pegaflow_metaserver_removal_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::removals,
                  &sharing_metrics::calls::failures>,
     "pegaflow_metaserver_removal_failures", "",
     "Calls to the metaserver that failed, of this kind: peers see an old picture. 0 without one."},
    {"pegaflow_metaserver_removal_queue_full_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::removals,
                  &sharing_metrics::calls::queue_full>,
     "pegaflow_metaserver_removal_queue_full", "",
     "Blocks not withdrawn from the metaserver as the queue was full. 0 without one."},
    {"pegaflow_metaserver_heartbeat_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::heartbeat_failures>,
     "pegaflow_metaserver_heartbeat_failures", "",
     "Heartbeats that the metaserver did not take: after 30 s it hides this node. 0 without one."},
    {"pegaflow_metaserver_session_resets_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::session_resets>,
     "pegaflow_metaserver_session_resets", "",
     "Times the metaserver made this node start over. 0 without one."},
    {"pegaflow_metaserver_unregister_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::farewell_failures>,
     "pegaflow_metaserver_unregister_failures", "",
     "Farewells that the metaserver did not take: it forgets by time-out instead. 0 without one."},
    {"pegaflow_transfer_lock_active", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::locked_blocks>,
     "pegaflow_transfer_lock_active", "blocks",
     "Blocks locked for a peer that reads them. 0 without peers."},
    {"pegaflow_transfer_lock_timeouts_total_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::lock_timeouts>,
     "pegaflow_transfer_lock_timeouts_total", "",
     "Locks that a peer never released. 0 without peers."},
    {"pegaflow_transfer_lock_timeouts_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::lock_timeouts>, nullptr, "",
     "Alias of pegaflow_transfer_lock_timeouts_total_total, for published dashboards."},
    {"pegaflow_rdma_fetch_total_total", kind::counter, "status", "ok",
     &read_number<&server_metrics::sharing, &sharing_metrics::fetches_ok>,
     "pegaflow_rdma_fetch_total", "",
     "Fetches from peers by outcome: errors became misses. 0 without peers."},
    {"pegaflow_rdma_fetch_total_total", kind::counter, "status", "error",
     &read_number<&server_metrics::sharing, &sharing_metrics::fetches_failed>,
     "pegaflow_rdma_fetch_total", "",
     "Fetches from peers by outcome: errors became misses. 0 without peers."},
    {"pegaflow_rdma_fetch_total", kind::counter, "status", "ok",
     &read_number<&server_metrics::sharing, &sharing_metrics::fetches_ok>, nullptr, "",
     "Alias of pegaflow_rdma_fetch_total_total, as the documentation names it."},
    {"pegaflow_rdma_fetch_total", kind::counter, "status", "error",
     &read_number<&server_metrics::sharing, &sharing_metrics::fetches_failed>, nullptr, "",
     "Alias of pegaflow_rdma_fetch_total_total, as the documentation names it."},
    {"pegaflow_rdma_fetch_bytes_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::fetched_bytes>,
     "pegaflow_rdma_fetch_bytes", "bytes", "Bytes fetched from peers. 0 without peers."},
    {"pegaflow_rdma_qps", kind::gauge, nullptr, nullptr, nullptr, "pegaflow_rdma_qps", "",
     "Queue pairs connected to peers. 0 without peers."},
    {"pegaflow_pinned_for_load_unique_bytes", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::pinned_bytes>, nullptr, "",
     "Alias of kvd_pinned_bytes, for published dashboards."},
    {"kvd_leases", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::leases>, "kvd_leases", "leases",
     "Query leases that are neither used up nor expired: rising without end, an engine forgets "
     "them."},
    {"kvd_leased_blocks", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::leased_blocks>, "kvd_leased_blocks",
     "blocks", "Block references that leases hold: what eviction cannot touch."},
    {"kvd_pinned_bytes", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::pinned_bytes>, "kvd_pinned_bytes",
     "bytes", "Bytes that cannot be evicted now; near the capacity, saves are dropped."},
    {"kvd_lease_expirations_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::lease_expirations>,
     "kvd_lease_expirations", "",
     "Leases that ended by time: engines that queried and never loaded."},
    {"kvd_save_blocks_dropped_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::save_blocks_dropped>,
     "kvd_save_blocks_dropped", "",
     "Blocks left out of a Save as the pool was full: future misses; enlarge the pool."},
    {"kvd_save_blocks_present_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::save_blocks_present>,
     "kvd_save_blocks_present", "",
     "Saved blocks that were stored already: copies that engines could spare."},
    {"kvd_layout_mismatches_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::layout_mismatches>,
     "kvd_layout_mismatches", "",
     "Blocks found under a hash but of another layout, answered as misses: two models share a "
     "namespace."},
    {"kvd_slabs_moved_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::store, &store_metrics::slabs_moved>, "kvd_slabs_moved", "",
     "Slabs that changed their size class: how much the mix of layouts shifts."},
    {"kvd_load_cancelled_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::copy, &copy_metrics::load_cancelled>, "kvd_load_cancelled", "",
     "Loads dropped before their end: the client left, unlinked its flag, or the deadline came."},
    {"kvd_save_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::copy, &copy_metrics::save_failures>, "kvd_save_failures", "",
     "Saves whose copy failed: their blocks are not cached."},
    {"kvd_copy_queue_depth", kind::gauge, "direction", "save",
     &read_number<&server_metrics::copy, &copy_metrics::save_queue>, "kvd_copy_queue_depth", "jobs",
     "Copies that wait for a copy thread, by direction: lasting depth means too few threads."},
    {"kvd_copy_queue_depth", kind::gauge, "direction", "load",
     &read_number<&server_metrics::copy, &copy_metrics::load_queue>, "kvd_copy_queue_depth", "jobs",
     "Copies that wait for a copy thread, by direction: lasting depth means too few threads."},
    {"kvd_copy_inflight", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::copy, &copy_metrics::inflight>, "kvd_copy_inflight", "jobs",
     "Copies that are running now."},
    {"kvd_ssd_up", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::up>, "kvd_ssd_up", "",
     "1 while the SSD tier works; 0 when an error switched it off, or there is none."},
    {"kvd_ssd_switched_off_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::switched_off>, "kvd_ssd_switched_off", "",
     "How often an error switched the SSD tier off: look at the device and its free space."},
    {"kvd_ssd_corrupt_blocks_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::corrupt>, "kvd_ssd_corrupt_blocks", "",
     "Blocks on SSD whose checksum or identity was wrong; each became a miss."},
    {"kvd_ssd_write_skipped_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::write_skipped_evicted>,
     "kvd_ssd_write_skipped", "",
     "Blocks that left RAM before their turn to be written: the SSD is slower than the saves."},
    {"kvd_ssd_registered_buffers", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::registered_buffers>,
     "kvd_ssd_registered_buffers", "",
     "Pieces of the pool that io_uring holds registered: 0 when it was refused, /status says why."},
    {"kvd_ssd_operations_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::operations>, "kvd_ssd_operations", "",
     "Reads and writes that io_uring was asked for, up to two a block."},
    {"kvd_ssd_fixed_operations_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::ssd, &ssd_metrics::fixed_operations>, "kvd_ssd_fixed_operations",
     "", "Those of kvd_ssd_operations_total whose memory is registered."},
    {"kvd_instances", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::control, &control_metrics::instances>, "kvd_instances",
     "instances", "Engine instances that are registered."},
    {"kvd_sessions", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::control, &control_metrics::sessions>, "kvd_sessions", "sessions",
     "Open session streams: as many as engines that are alive."},
    {"kvd_sessions_lost_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::control, &control_metrics::sessions_lost>, "kvd_sessions_lost",
     "",
     "Sessions that ended while their instance was registered: engines that died or were killed."},
    {"kvd_task_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::control, &control_metrics::task_failures>, "kvd_task_failures",
     "", "Background rounds that failed; any increase is a bug, please report it."},
    {"kvd_slow_tasks_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::control, &control_metrics::slow_tasks>, "kvd_slow_tasks", "",
     "Background rounds that took over 5 s: registrations and cleanups waited behind them."},
};

const histogram& residence_pressure(const server_metrics& from) {
  return from.store.residence_pressure;
}
const histogram& residence_cleanup(const server_metrics& from) {
  return from.store.residence_cleanup;
}
template<auto Member>
const histogram& ssd_histogram(const server_metrics& from) {
  return from.ssd.*Member;
}
const histogram& fetch_seconds_ok(const server_metrics& from) {
  return from.sharing.fetch_seconds_ok;
}
const histogram& fetch_seconds_failed(const server_metrics& from) {
  return from.sharing.fetch_seconds_failed;
}
const histogram& save_seconds(const server_metrics& from) {
  return from.copy.save_seconds;
}
const histogram& load_seconds(const server_metrics& from) {
  return from.copy.load_seconds;
}

constexpr const char* residence_help =
    "How long a block stayed in RAM: far below the reuse distance, the pool is too small.";
constexpr const char* write_rate_help =
    "Bytes per second of one SSD write: what the device gives. Empty without an SSD tier.";
constexpr const char* read_rate_help =
    "Bytes per second of one SSD read: what the device gives. Empty without an SSD tier.";

constexpr histogram_row histogram_rows[] = {
    {"pegaflow_cache_residence_duration_seconds", "reason", "pressure", &residence_pressure,
     "pegaflow_cache_residence_duration", "s", residence_help},
    {"pegaflow_cache_residence_duration_seconds", "reason", "cleanup", &residence_cleanup,
     "pegaflow_cache_residence_duration", "s", residence_help},
    {"pegaflow_save_duration_seconds", nullptr, nullptr, &save_seconds, "pegaflow_save_duration",
     "s", "How long the copies of one Save took: part of its latency."},
    {"pegaflow_load_duration_seconds", nullptr, nullptr, &load_seconds, "pegaflow_load_duration",
     "s", "How long one Load took: it adds to the time to first token."},
    {"pegaflow_ssd_write_throughput_per_second", nullptr, nullptr,
     &ssd_histogram<&ssd_metrics::write_rate>, "pegaflow_ssd_write_throughput", "bytes/s",
     write_rate_help},
    {"pegaflow_ssd_write_throughput_bytes_per_second_per_second", nullptr, nullptr,
     &ssd_histogram<&ssd_metrics::write_rate>, nullptr, "",
     "Alias of pegaflow_ssd_write_throughput_per_second."},
    {"pegaflow_ssd_write_duration_seconds", nullptr, nullptr,
     &ssd_histogram<&ssd_metrics::write_seconds>, nullptr, "",
     "How long one SSD write took. Empty without an SSD tier."},
    {"pegaflow_ssd_prefetch_throughput_per_second", nullptr, nullptr,
     &ssd_histogram<&ssd_metrics::read_rate>, "pegaflow_ssd_prefetch_throughput", "bytes/s",
     read_rate_help},
    {"pegaflow_ssd_prefetch_throughput_bytes_per_second_per_second", nullptr, nullptr,
     &ssd_histogram<&ssd_metrics::read_rate>, nullptr, "",
     "Alias of pegaflow_ssd_prefetch_throughput_per_second."},
    {"pegaflow_ssd_prefetch_duration_seconds", nullptr, nullptr,
     &ssd_histogram<&ssd_metrics::read_seconds>, nullptr, "",
     "How long one SSD read took. Empty without an SSD tier."},
    {"pegaflow_rdma_fetch_duration_seconds", "status", "ok", &fetch_seconds_ok,
     "pegaflow_rdma_fetch_duration", "s",
     "How long a fetch from a peer took. Empty without peers."},
    {"pegaflow_rdma_fetch_duration_seconds", "status", "error", &fetch_seconds_failed,
     "pegaflow_rdma_fetch_duration", "s",
     "How long a fetch from a peer took. Empty without peers."},
};

constexpr const char* methods[] = {"register_context_batch",
                                   "save",
                                   "load",
                                   "query_prefetch",
                                   "release",
                                   "unregister_context",
                                   "query_blocks_for_transfer",
                                   "release_transfer_lock",
                                   "rdma_handshake",
                                   "shutdown",
                                   "health"};
static_assert(std::size(methods) == rpc_metrics::methods);

// The sentences of the gRPC library that PegaFlow is built with; its dashboards match on them.
constexpr const char* statuses[] = {
    "ok",
    "The operation was cancelled",
    "Unknown error",
    "Client specified an invalid argument",
    "Deadline expired before operation could complete",
    "Some requested entity was not found",
    "Some entity that we attempted to create already exists",
    "The caller does not have permission to execute the specified operation",
    "Some resource has been exhausted",
    "The system is not in a state required for the operation's execution",
    "The operation was aborted",
    "Operation was attempted past the valid range",
    "Operation is not implemented or not supported",
    "Internal error",
    "The service is currently unavailable",
    "Unrecoverable data loss or corruption",
    "The request does not have valid authentication credentials"};
static_assert(std::size(statuses) == rpc_metrics::statuses);

}  // namespace

std::span<const number_row> numbers() {
  return number_rows;
}
std::span<const histogram_row> histograms() {
  return histogram_rows;
}
std::span<const char* const> rpc_methods() {
  return methods;
}
std::span<const char* const> rpc_statuses() {
  return statuses;
}

}  // namespace kvd::names
