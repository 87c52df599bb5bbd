#pragma once
// What the server role is told at start. Filled by cli/ from flags, environment and file; every
// field's default, unit and meaning stand in the option table (cli/server_options.cpp).

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/limits.hpp"
#include "core/log.hpp"

namespace kvd {

struct server_options {
  std::string addr = "127.0.0.1:50055";
  std::vector<int> devices;  // empty: detect
  std::uint64_t pool_bytes = std::uint64_t{30} << 30;
  std::uint64_t hint_value_bytes = 0;  // 0: none given
  bool use_hugepages = false;
  bool enable_lfu_admission = false;
  std::string eviction_policy;  // empty: the default policy
  bool disable_numa_affinity = false;
  bool blockwise_alloc = false;
  std::uint32_t pool_shards = 1;
  unsigned copy_threads = 0;  // 0: by core count
  log::level log_level = log::level::info;

  std::string http_addr = "0.0.0.0:9091";
  bool enable_prometheus = true;
  std::string metrics_otel_endpoint;  // empty: off
  std::chrono::seconds metrics_period{10};
  std::string admin_token;  // from --admin-token-file; empty: loopback only
  std::vector<std::chrono::seconds> hll_windows;
  unsigned hll_bucket_bits = 16;
  double trace_sample_rate = 1.0;

  std::chrono::seconds lease_ttl = limits::lease_ttl_default;
  std::chrono::seconds drain_timeout{30};
  std::string effective_json = "{}";  // every effective value and its source, for GET /config

  std::vector<std::string> ssd_cache_paths;
  std::uint64_t ssd_cache_capacity_bytes = std::uint64_t{512} << 30;
  std::uint32_t ssd_cache_shards = 1;
  std::uint32_t ssd_write_queue_depth = 8;
  std::uint32_t ssd_prefetch_queue_depth = 2;
  std::uint32_t ssd_write_inflight = 2;
  std::uint32_t ssd_prefetch_inflight = 16;
  std::string ssd_sync = "segment";
  std::uint64_t ssd_min_free_bytes = std::uint64_t{1} << 30;
  bool ssd_wipe = false;
  std::uint32_t max_prefetch_blocks = 800;
  std::vector<std::string> nics;
  std::uint32_t qps_per_peer = 2;
  std::vector<std::string> metaserver_addrs;  // host:port; empty: nothing is shared
  std::string advertise_addr;                 // empty: addr
  std::string peer_addr;                      // empty: the host of addr, any port
  std::vector<std::string> peer_links{"auto"};
  std::uint32_t metaserver_queue_depth = 4096;
  std::chrono::seconds transfer_lock_timeout{120};
};

}  // namespace kvd
