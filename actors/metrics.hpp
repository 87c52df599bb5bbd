#pragma once
// What /metrics and the OTLP push say: every number of core/server_metrics.hpp, and what the node
// adds at scrape time, under PegaFlow's names, the names that its dashboards ask for, and ours.
//
// The names, labels and HELP texts stand in actors/metrics_names.cpp; docs/metrics.md explains
// them. Series of tiers that are not part of this process (SSD, RDMA, metaserver) are 0, so that
// dashboards draw. An RPC's series appear with its first call.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "core/server_metrics.hpp"
#include "transport/grpc/otlp_exporter.hpp"

namespace kvd {

struct scraped_pool_node {
  std::string node;  // "0"; "all" where NUMA plays no part
  std::uint64_t capacity_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t largest_free_bytes = 0;
};

struct scraped_namespace {
  std::string name;
  std::uint64_t resident_bytes = 0;
  std::uint64_t resident_blocks = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t saved_blocks = 0;
};

struct scraped_hit_ceiling {
  std::string window;  // "15m"
  std::uint64_t distinct_misses = 0;
  std::uint64_t requests = 0;
  double hit_rate = 0;  // 0..1
};

struct scraped_queue {
  std::string queue;  // "cache", "engine"
  std::uint64_t depth = 0;
};

// Filled by the node when somebody asks; any thread.
struct scrape_extras {
  std::string boot_id;          // random, new with every start; empty: not exported
  double startup_progress = 0;  // 0..1, of the pool
  bool ready = false;
  std::vector<scraped_pool_node> pool;
  // In order of first use: those over limits::metrics_namespaces_max share one series.
  std::vector<scraped_namespace> namespaces;
  std::vector<scraped_hit_ceiling> hit_ceilings;
  std::vector<scraped_queue> queues;
  std::uint64_t inflight_blocks = 0;  // blocks that wait for more slots
  std::uint64_t pushes = 0;           // OTLP exports that were taken
  std::uint64_t push_failures = 0;
};

// Stateless beside its references; any thread.
class metrics_exporter {
public:
  // `numbers` outlives the exporter; `extras` is called for every collection and must not block.
  metrics_exporter(const server_metrics& numbers, std::function<scrape_extras()> extras);

  std::vector<prometheus::MetricFamily> collect() const;
  // Prometheus text format 0.0.4.
  std::string text() const;
  // The same families as OpenTelemetry instruments: raw names, without aliases.
  std::vector<otlp::metric> collect_for_push() const;

private:
  const server_metrics& numbers_;
  std::function<scrape_extras()> extras_;
};

}  // namespace kvd
