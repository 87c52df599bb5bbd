#pragma once
// What transport/peer counts: bytes from other nodes' pools, and what went wrong on the way.
//
// Names and HELP text live with the exporter. Updated on the port's threads; read by any.

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/metric.hpp"

namespace kvd {

namespace bounds {
inline constexpr double peer_seconds[] = {.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05,
                                          .1,    .25,    .5,    1,    2.5,   5,    10,  30,   60};
}  // namespace bounds

// What bytes travel on. mapped: the peer's pool is mapped, on the same host.
enum class peer_link_kind : std::uint8_t { mapped, tcp, rdma, count };

// How a read ended; see transport/peer/peer_port.hpp.
enum class peer_outcome : std::uint8_t {
  done,         // every piece arrived
  timed_out,    // the deadline passed
  unreachable,  // no link could be made
  link_lost,    // the link ended under the read: the holder died or the network did
  refused,      // the holder says that a piece is not of its pool, or it is another run
  cancelled,    // by the caller
  stopped,      // this port is ending
  count
};

struct peer_metrics {
  static constexpr auto kinds = static_cast<std::size_t>(peer_link_kind::count);
  static constexpr auto outcomes = static_cast<std::size_t>(peer_outcome::count);
  struct by_kind {
    counter read_bytes;  // of pieces that arrived
    gauge links_up;      // connected now
    counter links_made;
    counter links_lost;  // ended by an error or a deadline, not because nobody wanted them
  };
  std::array<by_kind, kinds> links;
  std::array<counter, outcomes> reads;  // ended, by outcome
  counter reads_rejected;               // not accepted: the queue was full
  counter link_failures;                // attempts that made no link
  gauge reads_queued;                   // accepted, nothing asked for yet
  gauge reads_inflight;
  gauge inflight_bytes;     // asked for and not arrived
  gauge quarantined_bytes;  // local memory of ended reads that the transport may still write to
  counter served_bytes;     // that others asked this node for; only where its CPU takes part
  counter served_requests;
  counter served_refusals;  // requests that were malformed or beyond the pool
  histogram read_seconds{bounds::peer_seconds};
};

}  // namespace kvd
