#include "cli/metaserver_options.hpp"

#include <chrono>
#include <cstdint>
#include <string>

#include "core/address.hpp"
#include "core/limits.hpp"

namespace kvd {

namespace {

using std::chrono::seconds;

constexpr std::uint64_t day_ms = 86'400'000;
constexpr std::uint64_t year_minutes = 525'600;

constexpr std::string_view log_levels[] = {"trace", "debug", "info", "warn", "error"};

result<std::string> parse_bind(std::string_view text) {
  return parse_address(text).map([](const address& a) { return a.to_string(); });
}

constexpr option rows[] = {
    {.name = "config",
     .value = "FILE",
     .group = "Process",
     .help = "TOML file of options; see configs/metaserver.toml.",
     .in_file = false},
    {.name = "check-config",
     .kind = option_kind::flag,
     .group = "Process",
     .help = "Validate everything, print every effective value and where it came from, and exit "
             "without allocating or binding anything.",
     .in_file = false},
    {.name = "log-level",
     .fallback = "info",
     .value = "LEVEL",
     .group = "Process",
     .help = "Lowest level that is logged.",
     .choices = log_levels,
     .also_env = "RUST_LOG"},

    {.name = "addr",
     .fallback = "127.0.0.1:50056",
     .value = "HOST:PORT",
     .group = "Addresses",
     .help = "Where servers connect (gRPC). Port 0 lets the system pick one.",
     .parse = parse_bind},
    {.name = "http-addr",
     .fallback = "0.0.0.0:9092",
     .value = "HOST:PORT",
     .group = "Addresses",
     .help = "Health, status and metrics over HTTP.",
     .parse = parse_bind},
    {.name = "admin-token-file",
     .value = "FILE",
     .group = "Addresses",
     .help = "File with the bearer token for destructive HTTP calls, read at start. Without it "
             "they are accepted from this host only."},

    {.name = "node-stale-secs",
     .kind = option_kind::period,
     .fallback = "30s",
     .value = "SECONDS",
     .group = "Directory",
     .help = "Blocks of a node that was not heard of for this long are hidden; servers send a "
             "heartbeat twice as often.",
     .low = 1000,
     .high = day_ms},
    {.name = "ttl-minutes",
     .kind = option_kind::count,
     .fallback = "120",
     .value = "MINUTES",
     .group = "Directory",
     .help = "Blocks that their node does not confirm are dropped after this time, and so is a "
             "node that was silent for it. At least --node-stale-secs.",
     .low = 1,
     .high = year_minutes},
    {.name = "sweep-interval-secs",
     .kind = option_kind::period,
     .fallback = "10m",
     .value = "SECONDS",
     .group = "Directory",
     .help = "How often that is looked after.",
     .low = 1000,
     .high = day_ms},
    {.name = "max-entries",
     .kind = option_kind::count,
     .fallback = "0",
     .value = "COUNT",
     .group = "Directory",
     .help = "Records of a block and a node that are kept, about 48 bytes each; more are refused. "
             "0: by a quarter of the memory that is there at start.",
     .low = 0,
     .high = limits::directory_owners_max},
};

}  // namespace

std::span<const option> metaserver_option_table() {
  return rows;
}

metaserver_options fill_metaserver_options(const resolution& values) {
  const auto whole_seconds = [&values](std::string_view name) {
    return std::chrono::duration_cast<seconds>(values.get<std::chrono::milliseconds>(name));
  };
  metaserver_options out;
  log::parse(values.get<std::string>("log-level"), out.log_level);
  out.addr = values.get<std::string>("addr");
  out.http_addr = values.get<std::string>("http-addr");
  out.node_stale = whole_seconds("node-stale-secs");
  out.ttl = std::chrono::minutes(values.get<std::uint64_t>("ttl-minutes"));
  out.sweep_interval = whole_seconds("sweep-interval-secs");
  out.max_entries = values.get<std::uint64_t>("max-entries");
  return out;
}

}  // namespace kvd
