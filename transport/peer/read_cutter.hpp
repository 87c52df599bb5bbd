#pragma once
// Cuts a read into transfers, and counts its pieces as their fragments arrive.
//
// Neighbours that adjoin at both ends become one fragment; a fragment is at most as large as a
// transfer, so that a large piece goes in several, over several connections.
//
// Owner: the port; its thread only.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/peer/peer_link.hpp"
#include "transport/peer/peer_port.hpp"

namespace kvd {

class node_remote;

// A read on its way. Pooled: vectors keep their capacity.
struct active_read {
  peer_read* read = nullptr;
  node_remote* remote = nullptr;
  time_point begun{};
  std::size_t next_piece = 0;  // first that is not wholly cut
  std::uint64_t next_byte = 0;
  std::vector<std::uint64_t> left;  // bytes of each piece that have not arrived
  std::size_t missing_pieces = 0;
  std::uint64_t missing_bytes = 0;
  std::vector<peer_transfer*> running;  // at a link, or waiting to go to one again
  bool ended = false;

  void begin(peer_read& of, node_remote& from, time_point now);
  bool all_cut() const noexcept { return next_piece == read->pieces.size(); }
};

struct cut_limits {
  std::uint64_t transfer_bytes;
  std::size_t fragments;
};
// Nobody asks for more at once: what decoders accept.
inline constexpr std::size_t transfer_fragments_max = 1024;

// Fills `out` with what comes next. REQUIRES: !of.all_cut().
void cut_next(active_read& of, const cut_limits& limits, peer_transfer& out);

// Counts the fragments that are done and were not counted, and marks pieces that are whole. Returns
// the bytes counted. REQUIRES: the read has not ended.
std::uint64_t count_arrived(active_read& of, peer_transfer& transfer);

}  // namespace kvd
