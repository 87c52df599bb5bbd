#include "cli/server_options.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/server_option_rows.hpp"
#include "core/address.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t hour_ms = 3'600'000;
constexpr std::uint64_t day_ms = 24 * hour_ms;

constexpr std::string_view log_levels[] = {"trace", "debug", "info", "warn", "error"};
constexpr std::string_view policies[] = {"weighted-lru", "lru", "arc", "s3fifo", "tinylfu"};

result<std::string> parse_endpoint(std::string_view text) {
  return parse_endpoint_url(text).map(
      [text](const address&) { return std::string(trimmed(text)); });
}

// Empty means off, as PegaFlow has it.
result<std::string> parse_collector(std::string_view text) {
  return trimmed(text).empty() ? std::string() : parse_endpoint(text);
}

result<std::string> parse_device(std::string_view text) {
  const auto id = parse_unsigned(text);
  if (!id || *id > INT32_MAX) {
    return fail(errc::invalid_argument,
                fmt::format("{} is no device number (0 to {})", in_quotes(text), INT32_MAX));
  }
  return fmt::format("{}", *id);
}

// A window of distinct-block counting. The canonical text is the label of its metric: 24h is 1d.
result<std::string> parse_window(std::string_view text) {
  const auto bare = trimmed(text);
  if (!bare.empty() && bare.back() >= '0' && bare.back() <= '9') {
    return fail(errc::invalid_argument,
                fmt::format("{} lacks its unit: s, m, h or d", in_quotes(text)));
  }
  const auto span = parse_duration(bare);
  if (!span) return tl::unexpected(span.error());
  if (!span->exact || span->length % seconds(1) != milliseconds(0)) {
    return fail(errc::invalid_argument,
                fmt::format("{} is not a whole number of seconds", in_quotes(text)));
  }
  if (span->length < std::chrono::minutes(1) || span->length > milliseconds(366 * day_ms)) {
    return fail(errc::invalid_argument,
                fmt::format("{} is outside the limits 60s to 366d", in_quotes(text)));
  }
  return format_duration(span->length);
}

// The window that parse_window() accepted before.
seconds window_length(const std::string& text) {
  return std::chrono::duration_cast<seconds>(parse_duration(text)->length);
}

using so = server_options;
using ov = option_value;
using namespace option_values;

// One row an option; help shows them in this order.
const server_option_row rows[] = {
    {{.name = "config",
      .value = "FILE",
      .group = "Process",
      .help = "TOML file of options; see configs/server.toml.",
      .in_file = false},
     nullptr},
    {{.name = "check-config",
      .kind = option_kind::flag,
      .group = "Process",
      .help = "Validate everything, print every effective value and where it came from, and exit "
              "without allocating or binding anything.",
      .in_file = false},
     nullptr},
    {{.name = "log-level",
      .fallback = "info",
      .value = "LEVEL",
      .group = "Process",
      .help = "Lowest level that is logged.",
      .choices = log_levels,
      .also_env = "RUST_LOG"},
     [](so& o, const ov& v) { log::parse(text_of(v), o.log_level); }},
    {{.name = "lease-ttl-secs",
      .kind = option_kind::period,
      .fallback = "10m",
      .value = "SECONDS",
      .group = "Process",
      .help = "How long a query's blocks stay pinned when nobody loads or releases "
              "them.",
      .low = 1000,
      .high = day_ms},
     [](so& o, const ov& v) { o.lease_ttl = whole_seconds(v); }},
    {{.name = "drain-timeout-secs",
      .kind = option_kind::period,
      .fallback = "30s",
      .value = "SECONDS",
      .group = "Process",
      .help = "How long loads may take to finish after SIGTERM.",
      .low = 0,
      .high = hour_ms},
     [](so& o, const ov& v) { o.drain_timeout = whole_seconds(v); }},

    {{.name = "addr",
      .fallback = "127.0.0.1:50055",
      .value = "HOST:PORT",
      .group = "Addresses",
      .help = "Where engines connect (gRPC). Port 0 lets the system pick one.",
      .parse = parse_bind},
     [](so& o, const ov& v) { o.addr = text_of(v); }},
    {{.name = "http-addr",
      .fallback = "0.0.0.0:9091",
      .value = "HOST:PORT",
      .group = "Addresses",
      .help = "Health, status and metrics over HTTP.",
      .parse = parse_bind},
     [](so& o, const ov& v) { o.http_addr = text_of(v); }},
    {{.name = "admin-token-file",
      .value = "FILE",
      .group = "Addresses",
      .help =
          "File with the bearer token for destructive HTTP calls, read at start. Without it they "
          "are accepted from this host only."},
     nullptr},

    {{.name = "pool-size",
      .kind = option_kind::size,
      .fallback = "30gb",
      .value = "SIZE",
      .group = "Memory",
      .help = "Pinned memory to claim at start, over all NUMA nodes.",
      .low = 4096,
      .high = limits::pool_bytes_max},
     [](so& o, const ov& v) { o.pool_bytes = number_of(v); }},
    {{.name = "hint-value-size",
      .kind = option_kind::size,
      .value = "SIZE",
      .group = "Memory",
      .help = "Typical size of one block, to cut the pool before the first engine registers.",
      .low = 1,
      .high = limits::pool_bytes_max},
     [](so& o, const ov& v) { o.hint_value_bytes = number_of(v); }},
    {{.name = "use-hugepages",
      .kind = option_kind::flag,
      .fallback = "false",
      .group = "Memory",
      .help =
          "Back the pool with huge pages, which must be reserved in /proc/sys/vm/nr_hugepages."},
     [](so& o, const ov& v) { o.use_hugepages = truth(v); }},
    {{.name = "disable-numa-affinity",
      .kind = option_kind::flag,
      .fallback = "false",
      .group = "Memory",
      .help = "One pool instead of one a NUMA node."},
     [](so& o, const ov& v) { o.disable_numa_affinity = truth(v); }},
    {{.name = "blockwise-alloc",
      .kind = option_kind::flag,
      .fallback = "false",
      .group = "Memory",
      .help = "Allocate each block on its own instead of a batch at once."},
     [](so& o, const ov& v) { o.blockwise_alloc = truth(v); }},
    {{.name = "pool-shards",
      .kind = option_kind::count,
      .fallback = "1",
      .value = "COUNT",
      .group = "Memory",
      .help = "Accepted for PegaFlow's sake; the pool of a node needs no parts.",
      .low = 1,
      .high = 256},
     [](so& o, const ov& v) { o.pool_shards = small_number_of(v); }},
    {{.name = "copy-threads",
      .kind = option_kind::count,
      .fallback = "0",
      .value = "COUNT",
      .group = "Memory",
      .help = "Threads that copy between engines and the pool; 0 is by core count.",
      .low = 0,
      .high = 1024},
     [](so& o, const ov& v) { o.copy_threads = small_number_of(v); }},
    {{.name = "devices",
      .kind = option_kind::list,
      .value = "ID[,ID...]",
      .group = "Memory",
      .help = "CUDA devices to initialise (default: all that are there).",
      .parse = parse_device},
     [](so& o, const ov& v) {
       for (const auto& id : list_of(v))
         o.devices.push_back(static_cast<int>(*parse_unsigned(id)));
     }},

    {{.name = "eviction-policy",
      .fallback = "weighted-lru",
      .value = "NAME",
      .group = "Eviction",
      .help = "Which block goes first when the pool is full.",
      .choices = policies},
     [](so& o, const ov& v) { o.eviction_policy = text_of(v); }},
    {{.name = "enable-lfu-admission",
      .kind = option_kind::flag,
      .fallback = "false",
      .group = "Eviction",
      .help = "Admit a new block only if it is asked for more often than the one "
              "it would displace (TinyLFU)."},
     [](so& o, const ov& v) { o.enable_lfu_admission = truth(v); }},

    {{.name = "enable-prometheus",
      .kind = option_kind::flag,
      .fallback = "true",
      .group = "Metrics",
      .help = "Serve /metrics; --no-enable-prometheus turns it off."},
     [](so& o, const ov& v) { o.enable_prometheus = truth(v); }},
    {{.name = "metrics-otel-endpoint",
      .value = "URL",
      .group = "Metrics",
      .help = "Also push metrics by OTLP to http://host:port; empty is off.",
      .parse = parse_collector},
     [](so& o, const ov& v) { o.metrics_otel_endpoint = text_of(v); }},
    {{.name = "metrics-period-secs",
      .kind = option_kind::period,
      .fallback = "10s",
      .value = "SECONDS",
      .group = "Metrics",
      .help = "How often metrics are pushed.",
      .low = 1000,
      .high = day_ms},
     [](so& o, const ov& v) { o.metrics_period = whole_seconds(v); }},
    {{.name = "metric-hll-windows",
      .kind = option_kind::list,
      .fallback = "15m,1h,1d",
      .value = "SPAN[,SPAN...]",
      .group = "Metrics",
      .help = "Windows over which distinct blocks are counted, each at least 60s.",
      .parse = parse_window},
     [](so& o, const ov& v) {
       for (const auto& window : list_of(v))
         o.hll_windows.push_back(window_length(window));
     }},
    {{.name = "metric-hll-bucket-bits",
      .kind = option_kind::count,
      .fallback = "16",
      .value = "BITS",
      .group = "Metrics",
      .help = "Precision of those counts: 2^BITS registers each.",
      .low = 4,
      .high = 18},
     [](so& o, const ov& v) { o.hll_bucket_bits = small_number_of(v); }},
    {{.name = "trace-sample-rate",
      .kind = option_kind::ratio,
      .fallback = "1",
      .value = "RATIO",
      .group = "Metrics",
      .help = "Share of requests that are traced; accepted for PegaFlow's sake, "
              "this version has no tracing."},
     [](so& o, const ov& v) { o.trace_sample_rate = *std::get_if<double>(&v); }},
};

}  // namespace

std::span<const option> server_option_table() {
  static const std::vector<option> table = [] {
    std::vector<option> out;
    for (const auto& r : rows)
      out.push_back(r.spec);
    for (const auto& r : tier_option_rows())
      out.push_back(r.spec);
    return out;
  }();
  return table;
}

server_options fill_server_options(const resolution& values) {
  server_options out;
  for (const auto& r : rows)
    if (r.store != nullptr) r.store(out, values.at(r.spec.name).value);
  for (const auto& r : tier_option_rows())
    r.store(out, values.at(r.spec.name).value);
  return out;
}

}  // namespace kvd
