// Names of what a server counts while it shares blocks with other nodes.

#include "actors/metrics_names.hpp"

namespace kvd::names {

namespace {

template<peer_link_kind Kind, auto Member>
double read_link(const server_metrics& from) {
  return static_cast<double>((from.peers.links[static_cast<std::size_t>(Kind)].*Member).value());
}

template<peer_outcome Outcome>
double read_outcome(const server_metrics& from) {
  return static_cast<double>(from.peers.reads[static_cast<std::size_t>(Outcome)].value());
}

constexpr number_row sharing_rows[] = {
    {"kvd_metaservers_up", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::directories_up>, "kvd_metaservers_up",
     "", "Metaservers that answer: 0, and nothing is shared."},
    {"kvd_announced_blocks", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::announced_blocks>,
     "kvd_announced_blocks", "blocks",
     "Blocks that other nodes should know of; the entries of this node at a metaserver."},
    {"kvd_announcements_queued", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::queued_blocks>,
     "kvd_announcements_queued", "blocks",
     "Announcements that wait, over all metaservers: staying high, they are slow or away."},
    {"kvd_directory_comparisons_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::comparisons>,
     "kvd_directory_comparisons", "",
     "Comparisons with what a metaserver knows; standing still, it is never seen to be right."},
    {"kvd_directory_buckets_mended_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::buckets_mended>,
     "kvd_directory_buckets_mended", "",
     "Buckets that differed and were told anew: rising steadily, announcements get lost."},
    {"kvd_announcement_feed_lost_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::feed_lost>,
     "kvd_announcement_feed_lost", "",
     "Times that announcements came faster than they were taken, and the store was looked "
     "through."},
    {"kvd_locates_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::locates>, "kvd_locates", "",
     "Look-ups at a metaserver for blocks that this node lacks."},
    {"kvd_locate_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::locate_failures>,
     "kvd_locate_failures", "",
     "Look-ups that no metaserver answered in time: each became a miss."},
    {"kvd_peer_fetched_blocks_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::fetched_blocks>,
     "kvd_peer_fetched_blocks", "", "Blocks that came from other nodes."},
    {"kvd_peer_late_blocks_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::sharing, &sharing_metrics::late_blocks>, "kvd_peer_late_blocks",
     "",
     "Blocks thrown away as their holder's lock may have ended: raise "
     "--transfer-lock-timeout-secs."},
    {"kvd_peer_links", kind::gauge, "link", "mapped",
     &read_link<peer_link_kind::mapped, &peer_metrics::by_kind::links_up>, "kvd_peer_links", "",
     "Links to other nodes that are up, by what carries them."},
    {"kvd_peer_links", kind::gauge, "link", "tcp",
     &read_link<peer_link_kind::tcp, &peer_metrics::by_kind::links_up>, "kvd_peer_links", "",
     "Links to other nodes that are up, by what carries them."},
    {"kvd_peer_links", kind::gauge, "link", "rdma",
     &read_link<peer_link_kind::rdma, &peer_metrics::by_kind::links_up>, "kvd_peer_links", "",
     "Links to other nodes that are up, by what carries them."},
    {"kvd_peer_links_lost_total", kind::counter, "link", "mapped",
     &read_link<peer_link_kind::mapped, &peer_metrics::by_kind::links_lost>, "kvd_peer_links_lost",
     "", "Links that an error or a deadline ended: a network or a node that fails."},
    {"kvd_peer_links_lost_total", kind::counter, "link", "tcp",
     &read_link<peer_link_kind::tcp, &peer_metrics::by_kind::links_lost>, "kvd_peer_links_lost", "",
     "Links that an error or a deadline ended: a network or a node that fails."},
    {"kvd_peer_links_lost_total", kind::counter, "link", "rdma",
     &read_link<peer_link_kind::rdma, &peer_metrics::by_kind::links_lost>, "kvd_peer_links_lost",
     "", "Links that an error or a deadline ended: a network or a node that fails."},
    {"kvd_peer_read_bytes_total", kind::counter, "link", "mapped",
     &read_link<peer_link_kind::mapped, &peer_metrics::by_kind::read_bytes>, "kvd_peer_read_bytes",
     "", "Bytes read out of other nodes' pools, by what carried them."},
    {"kvd_peer_read_bytes_total", kind::counter, "link", "tcp",
     &read_link<peer_link_kind::tcp, &peer_metrics::by_kind::read_bytes>, "kvd_peer_read_bytes", "",
     "Bytes read out of other nodes' pools, by what carried them."},
    {"kvd_peer_read_bytes_total", kind::counter, "link", "rdma",
     &read_link<peer_link_kind::rdma, &peer_metrics::by_kind::read_bytes>, "kvd_peer_read_bytes",
     "", "Bytes read out of other nodes' pools, by what carried them."},
    {"kvd_peer_reads_total", kind::counter, "outcome", "done", &read_outcome<peer_outcome::done>,
     "kvd_peer_reads", "",
     "Reads from other nodes by how they ended; all but done became misses or went to another "
     "node."},
    {"kvd_peer_reads_total", kind::counter, "outcome", "timed_out",
     &read_outcome<peer_outcome::timed_out>, "kvd_peer_reads", "",
     "Reads from other nodes by how they ended; all but done became misses or went to another "
     "node."},
    {"kvd_peer_reads_total", kind::counter, "outcome", "unreachable",
     &read_outcome<peer_outcome::unreachable>, "kvd_peer_reads", "",
     "Reads from other nodes by how they ended; all but done became misses or went to another "
     "node."},
    {"kvd_peer_reads_total", kind::counter, "outcome", "link_lost",
     &read_outcome<peer_outcome::link_lost>, "kvd_peer_reads", "",
     "Reads from other nodes by how they ended; all but done became misses or went to another "
     "node."},
    {"kvd_peer_reads_total", kind::counter, "outcome", "refused",
     &read_outcome<peer_outcome::refused>, "kvd_peer_reads", "",
     "Reads from other nodes by how they ended; all but done became misses or went to another "
     "node."},
    {"kvd_peer_reads_total", kind::counter, "outcome", "cancelled",
     &read_outcome<peer_outcome::cancelled>, "kvd_peer_reads", "",
     "Reads from other nodes by how they ended; all but done became misses or went to another "
     "node."},
    {"kvd_peer_reads_total", kind::counter, "outcome", "stopped",
     &read_outcome<peer_outcome::stopped>, "kvd_peer_reads", "",
     "Reads from other nodes by how they ended; all but done became misses or went to another "
     "node."},
    {"kvd_peer_quarantined_bytes", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::peers, &peer_metrics::quarantined_bytes>,
     "kvd_peer_quarantined_bytes", "bytes",
     "Memory of reads that ended early and that the transport may still write to: it must fall to "
     "0."},
    {"kvd_peer_inflight_bytes", kind::gauge, nullptr, nullptr,
     &read_number<&server_metrics::peers, &peer_metrics::inflight_bytes>, "kvd_peer_inflight_bytes",
     "bytes", "Bytes asked of other nodes and not here yet."},
    {"kvd_peer_served_bytes_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::peers, &peer_metrics::served_bytes>, "kvd_peer_served_bytes", "",
     "Bytes that this node's threads sent to others; a mapping or RDMA needs none."},
    {"kvd_peer_served_refusals_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::peers, &peer_metrics::served_refusals>,
     "kvd_peer_served_refusals", "",
     "Requests of other nodes that were malformed or beyond the pool: look at who asks."},
    {"kvd_peer_link_failures_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::peers, &peer_metrics::link_failures>, "kvd_peer_link_failures",
     "", "Attempts that made no link: an address, a port or a firewall is wrong."},
    {"kvd_peer_reads_rejected_total", kind::counter, nullptr, nullptr,
     &read_number<&server_metrics::peers, &peer_metrics::reads_rejected>, "kvd_peer_reads_rejected",
     "", "Reads that were not begun because too many were under way."},
};

}  // namespace

std::span<const number_row> sharing_numbers() {
  return sharing_rows;
}

}  // namespace kvd::names
