#include "actors/metaserver_metrics.hpp"

#include <array>
#include <limits>
#include <string>
#include <utility>

#include "actors/metrics_names.hpp"

namespace kvd {

namespace {

using family_type = prometheus::MetricType;
using sample = prometheus::ClientMetric;
using sample_labels = std::vector<sample::Label>;

constexpr std::array<const char*, directory_rpc_metrics::methods> method_names = {
    "heartbeat_node",
    "unregister_node",
    "insert_block_hashes",
    "remove_block_hashes",
    "query_prefix_blocks",
    "describe",
    "locate",
    "compare",
    "replace"};
constexpr const char* owner_counts[] = {"1", "2", "3", ">=4"};

class family_list {
public:
  explicit family_list(std::vector<prometheus::MetricFamily>& into) : into_(into) {}

  void gauge(const char* name, const char* help, std::uint64_t value) {
    add(name, family_type::Gauge, help, {}, static_cast<double>(value));
  }
  void counter(const char* name, const char* help, std::uint64_t value) {
    add(name, family_type::Counter, help, {}, static_cast<double>(value));
  }
  // Samples of one family come one after the other.
  void add(const char* name, family_type type, const char* help, sample_labels labels,
           double value) {
    sample one;
    one.label = std::move(labels);
    (type == family_type::Counter ? one.counter.value : one.gauge.value) = value;
    add(name, type, help, std::move(one));
  }
  void add(const char* name, family_type type, const char* help, sample one) {
    if (into_.empty() || into_.back().name != name) into_.push_back({name, help, type, {}});
    into_.back().metric.push_back(std::move(one));
  }

private:
  std::vector<prometheus::MetricFamily>& into_;
};

void add_content(const directory_usage& usage, family_list& into) {
  into.gauge("pegaflow_metaserver_store_entries",
             "Blocks that some node holds: how much the fleet shares.", usage.keys);
  into.gauge("pegaflow_metaserver_block_owners",
             "Records of a block and a node: what fills the directory.", usage.owners);
  into.gauge("kvd_metaserver_entries_limit",
             "Records that the directory takes (--max-entries): near it, inserts are refused.",
             usage.owners_max);
  into.gauge("kvd_metaserver_memory_bytes", "Memory of records, chains and node lists.",
             usage.memory_bytes);
  into.counter("kvd_metaserver_entries_refused_total",
               "Records for which there was no room: raise --max-entries.", usage.refused_owners);
  for (const auto& [state, count] :
       {std::pair{"active", usage.nodes_fresh}, {"stale", usage.nodes_stale}}) {
    into.add("pegaflow_metaserver_nodes", family_type::Gauge,
             "Nodes by liveness; blocks of stale ones are hidden.", {{"state", state}},
             static_cast<double>(count));
  }
  into.gauge("kvd_metaserver_nodes_leaving",
             "Runs of nodes whose blocks are being forgotten; lasting, upkeep is stuck.",
             usage.nodes_leaving);
  for (std::size_t i = 0; i < usage.redundancy.size(); ++i) {
    into.add("pegaflow_metaserver_block_redundancy", family_type::Gauge,
             "Blocks by how many live nodes hold them, at the last sweep.",
             {{"owners", owner_counts[i]}}, static_cast<double>(usage.redundancy[i]));
  }
  into.add("pegaflow_metaserver_block_redundancy_avg", family_type::Gauge,
           "Live nodes a block on average, at the last sweep: by this the fleet's cache shrinks.",
           {}, usage.redundancy_mean);
  into.counter("pegaflow_metaserver_sweep_removed_owners_total",
               "Records that sweeps dropped by age: nodes that do not confirm what they hold.",
               usage.swept_owners);
  into.counter("pegaflow_metaserver_sweep_removed_keys_total",
               "Blocks that lost their last record to a sweep.", usage.swept_keys);
  into.counter("pegaflow_metaserver_sweep_removed_nodes_total",
               "Nodes that sweeps forgot after silence.", usage.swept_nodes);
  into.counter("kvd_metaserver_sweeps_total", "Sweeps that came to their end.", usage.sweeps);
}

void add_traffic(const metaserver_metrics& from, family_list& into) {
  into.counter("kvd_metaserver_inserted_hashes_total", "Hashes that nodes announced.",
               from.inserted.value());
  into.counter("kvd_metaserver_removed_owners_total", "Records that nodes withdrew.",
               from.removed.value());
  into.counter("kvd_metaserver_queried_hashes_total", "Hashes that were asked for.",
               from.queried.value());
  into.counter("kvd_metaserver_reclaimable_hints_total",
               "Hints to a third owner that it may evict a block first.", from.reclaimable.value());
  into.counter("kvd_metaserver_differing_buckets_total",
               "Buckets in which a node and the directory differed: announcements were lost.",
               from.differing_buckets.value());
  into.counter("kvd_metaserver_replaced_added_total",
               "Records that replacing put in: blocks that peers could not see before.",
               from.replaced_added.value());
  into.counter("kvd_metaserver_replaced_removed_total",
               "Records that replacing took out: blocks that were no longer there.",
               from.replaced_removed.value());
  into.counter("kvd_task_failures_total",
               "Background rounds that failed; any increase is a bug, please report it.",
               from.control.task_failures.value());
  into.counter("kvd_slow_tasks_total", "Background rounds that took over 5 s.",
               from.control.slow_tasks.value());
}

sample durations(const histogram& from, sample_labels labels) {
  sample out;
  out.label = std::move(labels);
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i <= from.bounds().size(); ++i) {
    cumulative += from.bucket(i);
    const auto bound =
        i < from.bounds().size() ? from.bounds()[i] : std::numeric_limits<double>::infinity();
    out.histogram.bucket.push_back({cumulative, bound});
  }
  out.histogram.sample_count = cumulative;
  out.histogram.sample_sum = from.sum();
  return out;
}

void add_calls(const directory_rpc_metrics& from, family_list& into) {
  const auto statuses = names::rpc_statuses();
  for (std::size_t method = 0; method < from.methods; ++method) {
    for (std::size_t status = 0; status < statuses.size(); ++status) {
      const auto count = from.requests[method][status].value();
      if (count == 0) continue;
      into.add("pegaflow_metaserver_rpc_requests_total", family_type::Counter,
               "Answered calls by method and status: who asks for what, and what goes wrong.",
               {{"method", method_names[method]}, {"status", statuses[status]}},
               static_cast<double>(count));
    }
  }
  for (std::size_t method = 0; method < from.methods; ++method) {
    const auto& seconds = from.seconds[method];
    for (const auto& [status, of] : {std::pair{"ok", &seconds.ok}, {"error", &seconds.error}}) {
      auto one = durations(*of, {{"method", method_names[method]}, {"status", status}});
      if (one.histogram.sample_count == 0) continue;
      into.add("pegaflow_metaserver_rpc_duration_seconds", family_type::Histogram,
               "How long calls took, by method and outcome: what nodes wait for.", std::move(one));
    }
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> metaserver_families(const metaserver_metrics& numbers,
                                                          const directory_usage& usage,
                                                          const std::string& directory_id) {
  std::vector<prometheus::MetricFamily> out;
  family_list into(out);
  into.add("kvd_build_info", family_type::Gauge, "Always 1; tells which version answers.",
           {{"version", KVD_VERSION}}, 1);
  into.add("kvd_metaserver_directory_info", family_type::Gauge,
           "Always 1; another directory_id than before means that it started empty.",
           {{"directory_id", directory_id}}, 1);
  add_content(usage, into);
  add_traffic(numbers, into);
  add_calls(numbers.rpc, into);
  return out;
}

}  // namespace kvd
