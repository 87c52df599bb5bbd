// Options of the tiers below RAM: SSD, and other nodes.

#include <fmt/format.h>

#include "cli/server_option_rows.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

using so = server_options;
using ov = option_value;
using namespace option_values;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t day_ms = 24 * 3'600'000;

constexpr std::string_view ssd_group = "SSD tier";
constexpr std::string_view peer_group = "Other nodes";
constexpr std::string_view ssd_syncs[] = {"process", "segment", "write"};
constexpr std::string_view peer_link_names[] = {"auto", "shm", "tcp", "rdma"};

// An address that others connect to.
result<std::string> parse_reachable(std::string_view text) {
  const auto at = parse_address(text);
  if (!at) return tl::unexpected<error>(at.error());
  if (at->port == 0 || at->is_unspecified()) {
    return fail(
        errc::invalid_argument,
        fmt::format("{} cannot be connected to: a host and a port are needed", in_quotes(text)));
  }
  return at->to_string();
}

// A metaserver: PegaFlow's URL or a bare address. https comes with TLS.
result<std::string> parse_metaserver(std::string_view text) {
  const auto bare = trimmed(text);
  if (bare.find("://") == std::string_view::npos) return parse_reachable(bare);
  if (bare.starts_with("https")) {
    return fail(errc::invalid_argument,
                fmt::format("{}: this version speaks to metaservers without TLS; say http://",
                            in_quotes(text)));
  }
  return parse_endpoint_url(bare).map([](const address& a) { return a.to_string(); });
}

result<std::string> parse_link(std::string_view text) {
  for (const auto known : peer_link_names)
    if (text == known) return std::string(text);
  return fail(errc::invalid_argument,
              fmt::format("{} is no link: auto, shm, tcp or rdma", in_quotes(text)));
}

const server_option_row rows[] = {
    {{.name = "ssd-cache-path",
      .kind = option_kind::list,
      .value = "FILE...",
      .group = ssd_group,
      .help = "Cache files on SSD; without one there is no SSD tier. With several shards a "
              "path each is a folder."},
     [](so& o, const ov& v) { o.ssd_cache_paths = list_of(v); }},
    {{.name = "ssd-cache-capacity",
      .kind = option_kind::size,
      .fallback = "512gb",
      .value = "SIZE",
      .group = ssd_group,
      .help = "Total over all files.",
      .low = mib,
      .high = std::uint64_t{1} << 60},
     [](so& o, const ov& v) { o.ssd_cache_capacity_bytes = number_of(v); }},
    {{.name = "ssd-cache-shards",
      .kind = option_kind::count,
      .fallback = "1",
      .value = "COUNT",
      .group = ssd_group,
      .help = "Files a path.",
      .low = 1,
      .high = 256},
     [](so& o, const ov& v) { o.ssd_cache_shards = small_number_of(v); }},
    {{.name = "ssd-write-queue-depth",
      .kind = option_kind::count,
      .fallback = "8",
      .value = "COUNT",
      .group = ssd_group,
      .help = "Write batches that may wait.",
      .low = 1,
      .high = 65536},
     [](so& o, const ov& v) { o.ssd_write_queue_depth = small_number_of(v); }},
    {{.name = "ssd-prefetch-queue-depth",
      .kind = option_kind::count,
      .fallback = "2",
      .value = "COUNT",
      .group = ssd_group,
      .help = "Read batches that may wait.",
      .low = 1,
      .high = 65536},
     [](so& o, const ov& v) { o.ssd_prefetch_queue_depth = small_number_of(v); }},
    {{.name = "ssd-write-inflight",
      .kind = option_kind::count,
      .fallback = "2",
      .value = "COUNT",
      .group = ssd_group,
      .help = "Blocks being written at once.",
      .low = 1,
      .high = 65536},
     [](so& o, const ov& v) { o.ssd_write_inflight = small_number_of(v); }},
    {{.name = "ssd-prefetch-inflight",
      .kind = option_kind::count,
      .fallback = "16",
      .value = "COUNT",
      .group = ssd_group,
      .help = "Blocks being read at once.",
      .low = 1,
      .high = 65536},
     [](so& o, const ov& v) { o.ssd_prefetch_inflight = small_number_of(v); }},
    {{.name = "max-prefetch-blocks",
      .kind = option_kind::count,
      .fallback = "800",
      .value = "COUNT",
      .group = ssd_group,
      .help = "Blocks that all reads together may hold.",
      .low = 1,
      .high = 1 << 20},
     [](so& o, const ov& v) { o.max_prefetch_blocks = small_number_of(v); }},
    {{.name = "ssd-sync",
      .fallback = "segment",
      .value = "LEVEL",
      .group = ssd_group,
      .help = "What a power loss may take: recent segments (process), the open segment "
              "(segment), nothing (write). None is lost when the process dies.",
      .choices = ssd_syncs},
     [](so& o, const ov& v) { o.ssd_sync = text_of(v); }},
    {{.name = "ssd-min-free",
      .kind = option_kind::size,
      .fallback = "1gb",
      .value = "SIZE",
      .group = ssd_group,
      .help = "Disk space that making the files leaves free.",
      .low = 0,
      .high = std::uint64_t{1} << 60},
     [](so& o, const ov& v) { o.ssd_min_free_bytes = number_of(v); }},
    {{.name = "ssd-wipe",
      .kind = option_kind::flag,
      .fallback = "false",
      .group = ssd_group,
      .help = "Start with empty files."},
     [](so& o, const ov& v) { o.ssd_wipe = truth(v); }},

    {{.name = "nics",
      .kind = option_kind::list,
      .value = "NAME[,NAME...]",
      .group = peer_group,
      .help = "Network cards for transfers between nodes; all when left out."},
     [](so& o, const ov& v) { o.nics = list_of(v); }},
    {{.name = "qps-per-peer",
      .kind = option_kind::count,
      .fallback = "2",
      .value = "COUNT",
      .group = peer_group,
      .help = "Connections for each pair of local and remote card.",
      .low = 1,
      .high = 1024},
     [](so& o, const ov& v) { o.qps_per_peer = small_number_of(v); }},
    {{.name = "metaserver-addr",
      .kind = option_kind::list,
      .value = "URL[,URL...]",
      .group = peer_group,
      .help = "Registries of who holds which block; all are told, the first that answers is asked.",
      .parse = parse_metaserver},
     [](so& o, const ov& v) { o.metaserver_addrs = list_of(v); }},
    {{.name = "advertise-addr",
      .value = "HOST:PORT",
      .group = peer_group,
      .help = "How other nodes reach --addr, where that is not what they should use.",
      .parse = parse_reachable},
     [](so& o, const ov& v) { o.advertise_addr = text_of(v); }},
    {{.name = "peer-addr",
      .value = "HOST:PORT",
      .group = peer_group,
      .help =
          "Where transfers to other nodes listen; the host of --addr and a free port otherwise.",
      .parse = parse_bind},
     [](so& o, const ov& v) { o.peer_addr = text_of(v); }},
    {{.name = "peer-links",
      .kind = option_kind::list,
      .fallback = "auto",
      .value = "LINK[,LINK...]",
      .group = peer_group,
      .help = "What transfers may use: auto, or some of shm, tcp, rdma.",
      .parse = parse_link},
     [](so& o, const ov& v) { o.peer_links = list_of(v); }},
    {{.name = "metaserver-queue-depth",
      .kind = option_kind::count,
      .fallback = "4096",
      .value = "COUNT",
      .group = peer_group,
      .help = "Announcements that may wait.",
      .low = 1,
      .high = 1 << 20},
     [](so& o, const ov& v) { o.metaserver_queue_depth = small_number_of(v); }},
    {{.name = "transfer-lock-timeout-secs",
      .kind = option_kind::period,
      .fallback = "2m",
      .value = "SECONDS",
      .group = peer_group,
      .help = "How long a block stays pinned for a node that never says it is done.",
      .low = 1000,
      .high = day_ms},
     [](so& o, const ov& v) { o.transfer_lock_timeout = whole_seconds(v); }},
};

}  // namespace

std::span<const server_option_row> tier_option_rows() {
  return rows;
}

}  // namespace kvd
