#include "actors/metrics.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>

#include <prometheus/text_serializer.h>

#include "actors/metrics_names.hpp"
#include "core/limits.hpp"

namespace kvd {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using labels = std::vector<ClientMetric::Label>;

// A family and what the push calls it; no name: an alias.
struct series {
  MetricFamily family;
  const char* pushed_as;
  const char* unit;
};

// Length of the UTF-8 sequence at the front of `text`, 0 if it is none.
std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xC2 && lead < 0xE0  ? 2
                             : lead >= 0xE0 && lead < 0xF0  ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  const auto second = length > 1 ? static_cast<unsigned char>(text[1]) : 0U;
  // Overlong forms, surrogates, and what lies beyond Unicode.
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
    return 0;
  return length;
}

// Label values must be UTF-8, while a client names its namespace as it likes.
std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto length = utf8_length(text);
    if (length == 0)
      out += '?';
    else
      out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

labels labelled(const char* name, std::string_view value) {
  if (name == nullptr) return {};
  return {{name, printable(value)}};
}

ClientMetric number(MetricType type, labels with, double value) {
  ClientMetric out;
  out.label = std::move(with);
  if (type == MetricType::Counter)
    out.counter.value = value;
  else
    out.gauge.value = value;
  return out;
}

ClientMetric distribution(labels with, const histogram& from) {
  ClientMetric out;
  out.label = std::move(with);
  std::uint64_t cumulative = 0;
  const auto bounds = from.bounds();
  for (std::size_t i = 0; i <= bounds.size(); ++i) {
    cumulative += from.bucket(i);
    const double bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
    out.histogram.bucket.push_back({cumulative, bound});
  }
  out.histogram.sample_count = cumulative;
  out.histogram.sample_sum = from.sum();
  return out;
}

class collection {
public:
  // The family of that name, made with its first use. Equal names come one after the other.
  MetricFamily& family(const char* name, MetricType type, const char* help, const char* pushed_as,
                       const char* unit) {
    if (all_.empty() || all_.back().family.name != name)
      all_.push_back({MetricFamily{name, help, type, {}}, pushed_as, unit});
    return all_.back().family;
  }

  void gauge(const char* name, const char* help, double value) {
    family(name, MetricType::Gauge, help, name, "")
        .metric.push_back(number(MetricType::Gauge, {}, value));
  }

  std::vector<series> take() { return std::move(all_); }

private:
  std::vector<series> all_;
};

void add_numbers(const server_metrics& from, std::span<const names::number_row> rows,
                 collection& into) {
  for (const auto& row : rows) {
    const auto type = row.type == names::kind::counter ? MetricType::Counter : MetricType::Gauge;
    auto& family = into.family(row.name, type, row.help, row.pushed_as, row.unit);
    family.metric.push_back(number(type,
                                   labelled(row.label, row.label == nullptr ? "" : row.label_value),
                                   row.read == nullptr ? 0 : row.read(from)));
  }
}

void add_histograms(const server_metrics& from, collection& into) {
  for (const auto& row : names::histograms()) {
    auto& family = into.family(row.name, MetricType::Histogram, row.help, row.pushed_as, row.unit);
    family.metric.push_back(distribution(
        labelled(row.label, row.label == nullptr ? "" : row.label_value), row.read(from)));
  }
}

void add_rpcs(const rpc_metrics& from, collection& into) {
  const auto methods = names::rpc_methods();
  const auto statuses = names::rpc_statuses();
  for (std::size_t method = 0; method < methods.size(); ++method) {
    for (std::size_t status = 0; status < statuses.size(); ++status) {
      const auto count = from.requests[method][status].value();
      if (count == 0) continue;
      into.family("pegaflow_rpc_requests_total", MetricType::Counter,
                  "Answered calls by method and status: who asks for what, and what goes wrong.",
                  "pegaflow_rpc_requests", "")
          .metric.push_back(number(MetricType::Counter,
                                   {{"method", methods[method]}, {"status", statuses[status]}},
                                   static_cast<double>(count)));
    }
  }
  for (std::size_t method = 0; method < methods.size(); ++method) {
    const auto& seconds = from.seconds[method];
    for (const auto& [status, of] : {std::pair{"ok", &seconds.ok}, {"error", &seconds.error}}) {
      auto one = distribution({{"method", methods[method]}, {"status", status}}, *of);
      if (one.histogram.sample_count == 0) continue;
      into.family("pegaflow_rpc_duration_seconds", MetricType::Histogram,
                  "How long calls took, by method and outcome: what an engine waits for.",
                  "pegaflow_rpc_duration", "s")
          .metric.push_back(std::move(one));
    }
  }
}

void add_pool(const std::vector<scraped_pool_node>& nodes, collection& into) {
  scraped_pool_node sum;
  for (const auto& node : nodes) {
    sum.capacity_bytes += node.capacity_bytes;
    sum.used_bytes += node.used_bytes;
    sum.largest_free_bytes = std::max(sum.largest_free_bytes, node.largest_free_bytes);
  }
  into.gauge("pegaflow_pool_capacity_bytes", "Size of the pinned pool: the ceiling of used bytes.",
             static_cast<double>(sum.capacity_bytes));
  into.gauge("pegaflow_pool_used_bytes",
             "Allocated bytes of the pool: near the capacity is normal.",
             static_cast<double>(sum.used_bytes));
  into.gauge("pegaflow_pool_largest_free_bytes",
             "Largest free run of the pool; far below what is free in all, it is fragmented.",
             static_cast<double>(sum.largest_free_bytes));
  struct column {
    const char* name;
    const char* help;
    std::uint64_t scraped_pool_node::*value;
  };
  const column columns[] = {{"kvd_pool_node_capacity_bytes", "Pool bytes on one NUMA node.",
                             &scraped_pool_node::capacity_bytes},
                            {"kvd_pool_node_used_bytes",
                             "Allocated pool bytes on one NUMA node: whether nodes fill alike.",
                             &scraped_pool_node::used_bytes},
                            {"kvd_pool_node_largest_free_bytes",
                             "Largest free run of the pool on one NUMA node.",
                             &scraped_pool_node::largest_free_bytes}};
  for (const auto& column : columns)
    for (const auto& node : nodes)
      into.family(column.name, MetricType::Gauge, column.help, column.name, "bytes")
          .metric.push_back(number(MetricType::Gauge, labelled("node", node.node),
                                   static_cast<double>(node.*column.value)));
}

// The namespaces that get series of their own, and the sum of the others as the last one.
std::vector<scraped_namespace> bounded(const std::vector<scraped_namespace>& all) {
  if (all.size() <= limits::metrics_namespaces_max) return all;
  const auto own = limits::metrics_namespaces_max - 1;
  std::vector<scraped_namespace> out(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(own));
  scraped_namespace others;
  others.name = "(others)";
  for (std::size_t i = own; i < all.size(); ++i) {
    others.resident_bytes += all[i].resident_bytes;
    others.resident_blocks += all[i].resident_blocks;
    others.hits += all[i].hits;
    others.misses += all[i].misses;
    others.saved_blocks += all[i].saved_blocks;
  }
  out.push_back(std::move(others));
  return out;
}

// Different bytes may become equal label values (printable()); equal series must not repeat.
std::vector<scraped_namespace> distinct(std::vector<scraped_namespace> all) {
  std::set<std::string> seen;
  for (auto& each : all) {
    const auto base = printable(each.name);
    each.name = base;
    for (unsigned twin = 2; !seen.insert(each.name).second; ++twin)
      each.name = base + "#" + std::to_string(twin);
  }
  return all;
}

void add_namespaces(const std::vector<scraped_namespace>& all, collection& into) {
  struct column {
    const char* name;
    const char* pushed_as;
    MetricType type;
    const char* help;
    std::uint64_t scraped_namespace::*value;
  };
  const column columns[] = {
      {"kvd_namespace_resident_bytes", "kvd_namespace_resident_bytes", MetricType::Gauge,
       "Cached bytes of one namespace: who fills the pool.", &scraped_namespace::resident_bytes},
      {"kvd_namespace_resident_blocks", "kvd_namespace_resident_blocks", MetricType::Gauge,
       "Cached blocks of one namespace.", &scraped_namespace::resident_blocks},
      {"kvd_namespace_block_hits_total", "kvd_namespace_block_hits", MetricType::Counter,
       "Queried blocks of one namespace that were in RAM: who gains from the cache.",
       &scraped_namespace::hits},
      {"kvd_namespace_block_misses_total", "kvd_namespace_block_misses", MetricType::Counter,
       "Queried blocks of one namespace that were not in RAM.", &scraped_namespace::misses},
      {"kvd_namespace_saved_blocks_total", "kvd_namespace_saved_blocks", MetricType::Counter,
       "Blocks that one namespace saved: who writes.", &scraped_namespace::saved_blocks}};
  const auto shown = distinct(bounded(all));
  for (const auto& column : columns)
    for (const auto& each : shown)
      into.family(column.name, column.type, column.help, column.pushed_as, "")
          .metric.push_back(number(column.type, {{"namespace", each.name}},
                                   static_cast<double>(each.*column.value)));
}

void add_hit_ceilings(const std::vector<scraped_hit_ceiling>& windows, collection& into) {
  const auto add = [&](const char* name, const char* help, auto value) {
    for (const auto& window : windows)
      into.family(name, MetricType::Gauge, help, name, "")
          .metric.push_back(number(MetricType::Gauge, labelled("window", window.window),
                                   static_cast<double>(value(window))));
  };
  add("pegaflow_hll_cardinality", "Distinct blocks that queries missed in the window (estimate).",
      [](const auto& window) { return window.distinct_misses; });
  add("pegaflow_hll_total_requests", "Blocks that queries asked for in the window.",
      [](const auto& window) { return window.requests; });
  add("pegaflow_hll_estimated_hit_rate",
      "Hit rate that an endless cache would have had in the window: what more memory can bring.",
      [](const auto& window) { return window.hit_rate; });
}

void add_process(const scrape_extras& extras, collection& into) {
  into.family("kvd_build_info", MetricType::Gauge, "Always 1; tells which version answers.",
              "kvd_build_info", "")
      .metric.push_back(number(MetricType::Gauge, {{"version", KVD_VERSION}}, 1));
  if (!extras.boot_id.empty())
    into.family("kvd_boot_info", MetricType::Gauge,
                "Always 1; another boot_id than before means that kvd was restarted.",
                "kvd_boot_info", "")
        .metric.push_back(number(MetricType::Gauge, labelled("boot_id", extras.boot_id), 1));
  into.gauge("kvd_startup_progress_ratio", "How much of the pool is claimed, 0 to 1.",
             extras.startup_progress);
  into.gauge("kvd_ready", "1 while work should be sent here; /ready says why not.",
             extras.ready ? 1 : 0);
  into.gauge("pegaflow_inflight_blocks", "Blocks that wait for the slots of other workers.",
             static_cast<double>(extras.inflight_blocks));
  for (const auto& queue : extras.queues)
    into.family("kvd_queue_depth", MetricType::Gauge,
                "Messages that wait for one part of kvd: lasting depth shows the bottleneck.",
                "kvd_queue_depth", "")
        .metric.push_back(number(MetricType::Gauge, labelled("queue", queue.queue),
                                 static_cast<double>(queue.depth)));
  for (const auto& [outcome, count] :
       {std::pair{"ok", extras.pushes}, {"error", extras.push_failures}})
    into.family("kvd_otlp_exports_total", MetricType::Counter,
                "OTLP exports by outcome: errors are gaps in what the collector knows.",
                "kvd_otlp_exports", "")
        .metric.push_back(
            number(MetricType::Counter, {{"outcome", outcome}}, static_cast<double>(count)));
}

std::vector<series> collect_series(const server_metrics& from, const scrape_extras& extras) {
  collection into;
  add_process(extras, into);
  add_pool(extras.pool, into);
  add_numbers(from, names::numbers(), into);
  add_numbers(from, names::sharing_numbers(), into);
  add_histograms(from, into);
  add_rpcs(from.rpc, into);
  add_hit_ceilings(extras.hit_ceilings, into);
  add_namespaces(extras.namespaces, into);
  return into.take();
}

otlp::point as_point(const ClientMetric& from, MetricType type) {
  otlp::point out;
  for (const auto& label : from.label)
    out.attributes.emplace_back(label.name, label.value);
  if (type != MetricType::Histogram) {
    out.value = type == MetricType::Counter ? from.counter.value : from.gauge.value;
    return out;
  }
  std::uint64_t below = 0;
  for (const auto& bucket : from.histogram.bucket) {
    out.buckets.push_back(bucket.cumulative_count - below);
    below = bucket.cumulative_count;
    if (bucket.upper_bound != std::numeric_limits<double>::infinity())
      out.bounds.push_back(bucket.upper_bound);
  }
  out.sum = from.histogram.sample_sum;
  return out;
}

}  // namespace

metrics_exporter::metrics_exporter(const server_metrics& numbers,
                                   std::function<scrape_extras()> extras)
    : numbers_(numbers), extras_(std::move(extras)) {}

std::vector<MetricFamily> metrics_exporter::collect() const {
  std::vector<MetricFamily> out;
  for (auto& each : collect_series(numbers_, extras_()))
    out.push_back(std::move(each.family));
  return out;
}

std::string metrics_exporter::text() const {
  return prometheus::TextSerializer{}.Serialize(collect());
}

std::vector<otlp::metric> metrics_exporter::collect_for_push() const {
  std::vector<otlp::metric> out;
  for (const auto& each : collect_series(numbers_, extras_())) {
    if (each.pushed_as == nullptr) continue;
    otlp::metric one;
    one.name = each.pushed_as;
    one.description = each.family.help;
    one.unit = each.unit;
    const std::string_view name = each.family.name;
    one.whole_numbers = !name.ends_with("_ratio") && !name.ends_with("_rate");
    one.type = each.family.type == MetricType::Counter     ? otlp::kind::sum
               : each.family.type == MetricType::Histogram ? otlp::kind::histogram
                                                           : otlp::kind::gauge;
    for (const auto& metric : each.family.metric)
      one.points.push_back(as_point(metric, each.family.type));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace kvd
