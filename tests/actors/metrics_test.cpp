// What /metrics and the push say, checked as a program and as promtool read it.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

#include "actors/metrics.hpp"
#include "actors/metrics_names.hpp"
#include "core/limits.hpp"

using namespace kvd;

namespace {

struct subject {
  // On the heap: the histograms make it big.
  std::unique_ptr<server_metrics> numbers = std::make_unique<server_metrics>();
  scrape_extras extras;
  metrics_exporter exporter{*numbers, [this] { return extras; }};
};

// Every label there is, every kind of value, and names that a hostile client could choose.
void fill(subject& s) {
  s.numbers->store.tier_ram.add(5);
  s.numbers->store.evictions_pressure.add(2);
  s.numbers->store.evictions_cleanup.add(3);
  s.numbers->store.residence_pressure.observe(7);
  s.numbers->copy.save_seconds.observe(.02);
  s.numbers->copy.save_seconds.observe(1000);
  s.numbers->rpc.requests[3][0].add(2);
  for (std::size_t status = 0; status < rpc_metrics::statuses; ++status)
    s.numbers->rpc.requests[1][status].add();
  s.numbers->rpc.seconds[3].ok.observe(.003);
  s.numbers->rpc.seconds[1].error.observe(.3);
  s.extras.boot_id = "c0ffee";
  s.extras.startup_progress = .42;
  s.extras.pool = {{"0", 100, 60, 30}, {"1", 100, 10, 90}};
  s.extras.namespaces = {{"m", 1, 2, 3, 4, 5},
                         {"quote\" back\\slash\nnewline", 1, 1, 1, 1, 1},
                         {"\xff\xfe", 1, 1, 1, 1, 1},
                         {"\xfe\xff", 1, 1, 1, 1, 1}};
  s.extras.hit_ceilings = {{"15m", 10, 100, .9}, {"1h", 20, 200, .9}};
  s.extras.queues = {{"cache", 3}, {"engine", 0}};
}

// What the published dashboards query and the published documents name.
constexpr const char* dashboard_names[] = {
    "pegaflow_cache_block_admission_rejections_total",
    "pegaflow_cache_block_evictions_still_referenced_total",
    "pegaflow_cache_block_evictions_by_class_total",
    "pegaflow_cache_block_evictions_total",
    "pegaflow_cache_block_hits_total",
    "pegaflow_cache_block_insertions_total",
    "pegaflow_cache_block_misses_total",
    "pegaflow_cache_eviction_reclaimed_bytes_total",
    "pegaflow_cache_residence_duration_seconds",
    "pegaflow_cache_resident_blocks",
    "pegaflow_cache_resident_bytes",
    "pegaflow_cache_tier_block_requests_total",
    "pegaflow_hll_cardinality",
    "pegaflow_hll_estimated_hit_rate",
    "pegaflow_hll_total_requests",
    "pegaflow_inflight_blocks",
    "pegaflow_inflight_bytes",
    "pegaflow_inflight_gc_cleaned_total",
    "pegaflow_load_bytes_total",
    "pegaflow_load_duration_seconds",
    "pegaflow_load_failures_total",
    "pegaflow_metaserver_heartbeat_failures_total",
    "pegaflow_metaserver_registration_blocks_total",
    "pegaflow_metaserver_registration_failures_total",
    "pegaflow_metaserver_registration_queue_full_total",
    "pegaflow_metaserver_removal_blocks_total",
    "pegaflow_metaserver_removal_failures_total",
    "pegaflow_metaserver_removal_queue_full_total",
    "pegaflow_metaserver_session_resets_total",
    "pegaflow_metaserver_unregister_failures_total",
    "pegaflow_pinned_for_load_unique_bytes",
    "pegaflow_pool_alloc_failures_total",
    "pegaflow_pool_capacity_bytes",
    "pegaflow_pool_largest_free_bytes",
    "pegaflow_pool_used_bytes",
    "pegaflow_prefetch_stale_gc_total",
    "pegaflow_prefetch_stale_gc_total_total",
    "pegaflow_rdma_fetch_bytes_total",
    "pegaflow_rdma_fetch_duration_seconds",
    "pegaflow_rdma_fetch_total",
    "pegaflow_rdma_fetch_total_total",
    "pegaflow_rdma_qps",
    "pegaflow_rpc_duration_seconds",
    "pegaflow_rpc_requests_total",
    "pegaflow_save_bytes_total",
    "pegaflow_save_duration_seconds",
    "pegaflow_ssd_prefetch_backpressure_blocks_total",
    "pegaflow_ssd_prefetch_bytes_total",
    "pegaflow_ssd_prefetch_duration_seconds",
    "pegaflow_ssd_prefetch_failures_total",
    "pegaflow_ssd_prefetch_inflight",
    "pegaflow_ssd_prefetch_queue_full_total",
    "pegaflow_ssd_prefetch_success_total",
    "pegaflow_ssd_prefetch_throughput_bytes_per_second_per_second",
    "pegaflow_ssd_prefetch_throughput_per_second",
    "pegaflow_ssd_write_bytes_total",
    "pegaflow_ssd_write_duration_seconds",
    "pegaflow_ssd_write_failures_total",
    "pegaflow_ssd_write_inflight",
    "pegaflow_ssd_write_queue_full_total",
    "pegaflow_ssd_write_queue_pending",
    "pegaflow_ssd_write_throughput_bytes_per_second_per_second",
    "pegaflow_ssd_write_throughput_per_second",
    "pegaflow_transfer_lock_active",
    "pegaflow_transfer_lock_timeouts_total",
    "pegaflow_transfer_lock_timeouts_total_total"};

std::string line_of(const std::string& text, const std::string& start) {
  const auto at = text.find("\n" + start);
  if (at == std::string::npos) return {};
  return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

struct tool_run {
  int status = -1;
  std::string output;
};

tool_run run_promtool(const std::string& text) {
  char path[] = "/tmp/kvd_metrics_XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  close(fd);
  std::ofstream(path) << text;
  tool_run out;
  auto* pipe = popen((std::string("promtool check metrics < ") + path + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char chunk[4096];
  while (const auto got = fread(chunk, 1, sizeof(chunk), pipe))
    out.output.append(chunk, got);
  const int status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::remove(path);
  return out;
}

}  // namespace

TEST_CASE("promtool is installed: the check of the exposition needs it") {
  const int status = std::system("command -v promtool > /dev/null");
  REQUIRE_MESSAGE(status == 0, "promtool is missing; install Debian's package 'prometheus'");
}

TEST_CASE("promtool accepts the exposition of an idle server and of a busy one") {
  subject s;
  const auto idle = run_promtool(s.exporter.text());
  CHECK_MESSAGE(idle.status == 0, idle.output);
  fill(s);
  const auto busy = run_promtool(s.exporter.text());
  CHECK_MESSAGE(busy.status == 0, busy.output);
}

TEST_CASE("promtool does refuse a wrong exposition, so that its silence means something") {
  CHECK(run_promtool("# TYPE x counter\nx 1\n").status != 0);
}

TEST_CASE("no family and no series occurs twice, and every family says what it is for") {
  subject s;
  fill(s);
  std::set<std::string> families, series;
  for (const auto& family : s.exporter.collect()) {
    CAPTURE(family.name);
    CHECK(families.insert(family.name).second);
    CHECK(family.help.size() > 10);
    CHECK(family.help.ends_with("."));
    CHECK_FALSE(family.metric.empty());
    for (const auto& metric : family.metric) {
      std::string key = family.name;
      for (const auto& label : metric.label)
        key += "|" + label.name + "=" + label.value;
      CAPTURE(key);
      CHECK(series.insert(key).second);
    }
  }
}

TEST_CASE("every name that PegaFlow's dashboards and documents ask for is there from the start") {
  subject s;
  std::set<std::string> present;
  fill(s);  // the series of RPCs begin with the first call
  for (const auto& family : s.exporter.collect())
    present.insert(family.name);
  for (const char* name : dashboard_names) {
    CAPTURE(name);
    CHECK(present.contains(name));
  }
}

TEST_CASE("docs/metrics.md has every series with its type and HELP text, and no other") {
  subject s;
  fill(s);
  std::set<std::string> exported;
  for (const auto& family : s.exporter.collect()) {
    const char* type = family.type == prometheus::MetricType::Counter     ? "counter"
                       : family.type == prometheus::MetricType::Histogram ? "histogram"
                                                                          : "gauge";
    exported.insert("| `" + family.name + "` | " + type + " | " + family.help + " |");
  }
  std::ifstream page(KVD_SOURCE_DIR "/docs/metrics.md");
  REQUIRE(page.is_open());
  std::set<std::string> documented;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `pegaflow_") && !line.starts_with("| `kvd_")) continue;
    // name | type | labels | help: the labels are for people.
    std::vector<std::string> cells;
    std::istringstream columns(line);
    for (std::string cell; std::getline(columns, cell, '|');)
      cells.push_back(cell);
    REQUIRE(cells.size() >= 5);
    if (cells[2] == " gauge " || cells[2] == " counter " || cells[2] == " histogram ")
      documented.insert("|" + cells[1] + "|" + cells[2] + "|" + cells[4] + "|");
  }
  for (const auto& line : exported) {
    CAPTURE(line);
    CHECK(documented.contains(line));
  }
  for (const auto& line : documented) {
    CAPTURE(line);
    CHECK(exported.contains(line));
  }
}

TEST_CASE("numbers arrive under their names and labels") {
  subject s;
  fill(s);
  const auto text = s.exporter.text();
  const auto says = [&](const std::string& series, const std::string& value) {
    CAPTURE(series);
    CHECK(line_of(text, series) == series + " " + value);
  };
  says("pegaflow_cache_tier_block_requests_total{tier=\"ram\"}", "5");
  says("pegaflow_cache_tier_block_requests_total{tier=\"ssd\"}", "0");
  says("pegaflow_cache_block_evictions_total", "5");
  says("pegaflow_cache_block_evictions_by_class_total{class=\"retained\"}", "2");
  says("pegaflow_cache_residence_duration_seconds_bucket{reason=\"pressure\",le=\"5\"}", "0");
  says("pegaflow_cache_residence_duration_seconds_bucket{reason=\"pressure\",le=\"10\"}", "1");
  says("pegaflow_save_duration_seconds_bucket{le=\"60\"}", "1");
  says("pegaflow_save_duration_seconds_bucket{le=\"+Inf\"}", "2");
  says("pegaflow_save_duration_seconds_count", "2");
  says("pegaflow_pool_capacity_bytes", "200");
  says("pegaflow_pool_largest_free_bytes", "90");
  says("kvd_pool_node_used_bytes{node=\"1\"}", "10");
  says("kvd_namespace_block_hits_total{namespace=\"m\"}", "3");
  says("kvd_startup_progress_ratio", "0.42");
  says("kvd_build_info{version=\"" KVD_VERSION "\"}", "1");
  says("pegaflow_rpc_requests_total{method=\"query_prefetch\",status=\"ok\"}", "2");
  says("pegaflow_rpc_requests_total{method=\"save\",status=\"Client specified an invalid "
       "argument\"}",
       "1");
  says("pegaflow_rpc_duration_seconds_count{method=\"save\",status=\"error\"}", "1");
}

TEST_CASE("an idle server's counters do not move, and its RPC series do not exist") {
  subject s;
  const auto first = s.exporter.text();
  CHECK(s.exporter.text() == first);
  CHECK(first.find("pegaflow_rpc_") == std::string::npos);
}

TEST_CASE("namespaces over the bound share one series, and the sums stay whole") {
  subject s;
  const std::size_t count = limits::metrics_namespaces_max + 100;
  for (std::size_t i = 0; i < count; ++i)
    s.extras.namespaces.push_back({"ns" + std::to_string(i), 1, 1, 1, 1, 1});
  for (const auto& family : s.exporter.collect()) {
    if (family.name != "kvd_namespace_block_hits_total") continue;
    CHECK(family.metric.size() == limits::metrics_namespaces_max);
    double sum = 0;
    for (const auto& metric : family.metric)
      sum += metric.counter.value;
    CHECK(sum == static_cast<double>(count));
    CHECK(family.metric.back().label[0].value == "(others)");
  }
}

TEST_CASE("the push carries raw instrument names, each once, and no alias") {
  subject s;
  fill(s);
  std::set<std::string> names;
  for (const auto& metric : s.exporter.collect_for_push()) {
    CAPTURE(metric.name);
    CHECK(names.insert(metric.name).second);
    CHECK_FALSE(metric.points.empty());
    for (const auto& point : metric.points)
      if (metric.type == otlp::kind::histogram)
        CHECK(point.buckets.size() == point.bounds.size() + 1);
  }
  for (const char* raw : {"pegaflow_save_bytes", "pegaflow_save_duration", "pegaflow_rpc_requests",
                          "pegaflow_prefetch_stale_gc_total", "pegaflow_ssd_write_throughput"}) {
    CAPTURE(raw);
    CHECK(names.contains(raw));
  }
  CHECK_FALSE(names.contains("pegaflow_save_bytes_total"));
  CHECK_FALSE(names.contains("pegaflow_pinned_for_load_unique_bytes"));
}
