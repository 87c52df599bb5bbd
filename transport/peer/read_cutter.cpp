#include "transport/peer/read_cutter.hpp"

#include <algorithm>

namespace kvd {

void active_read::begin(peer_read& of, node_remote& from, time_point now) {
  read = &of;
  remote = &from;
  begun = now;
  next_piece = 0;
  next_byte = 0;
  missing_pieces = of.pieces.size();
  missing_bytes = 0;
  running.clear();
  ended = false;
  left.resize(of.pieces.size());
  for (std::size_t i = 0; i < of.pieces.size(); ++i) {
    left[i] = of.pieces[i].bytes;
    missing_bytes += left[i];
  }
}

void cut_next(active_read& of, const cut_limits& limits, peer_transfer& out) {
  out.of = &of;
  out.fragments.clear();
  out.bytes = 0;
  const auto pieces = of.read->pieces;
  while (!of.all_cut() && out.bytes < limits.transfer_bytes) {
    const auto& piece = pieces[of.next_piece];
    const auto bytes = std::min(piece.bytes - of.next_byte, limits.transfer_bytes - out.bytes);
    const auto offset = piece.offset + of.next_byte;
    auto* const to = piece.to + of.next_byte;
    auto* const last = out.fragments.empty() ? nullptr : &out.fragments.back();
    if (last != nullptr && last->offset + last->bytes == offset && last->to + last->bytes == to) {
      last->bytes += bytes;
    } else {
      if (out.fragments.size() == limits.fragments) return;
      out.fragments.push_back({offset, to, bytes, of.next_piece, of.next_byte});
    }
    out.bytes += bytes;
    of.next_byte += bytes;
    if (of.next_byte == piece.bytes) {
      ++of.next_piece;
      of.next_byte = 0;
    }
  }
}

std::uint64_t count_arrived(active_read& of, peer_transfer& transfer) {
  std::uint64_t counted = 0;
  for (auto& fragment : transfer.fragments) {
    if (!fragment.done) continue;
    auto bytes = fragment.bytes;
    counted += bytes;
    auto room = of.read->pieces[fragment.piece].bytes - fragment.skip;
    for (auto piece = fragment.piece; bytes > 0; ++piece) {
      const auto here = std::min(bytes, room);
      of.left[piece] -= here;
      bytes -= here;
      if (of.left[piece] == 0) {
        of.read->states[piece] = piece_state::arrived;
        --of.missing_pieces;
      }
      if (bytes > 0) room = of.read->pieces[piece + 1].bytes;
    }
  }
  std::erase_if(transfer.fragments, [](const peer_fragment& f) { return f.done; });
  of.missing_bytes -= counted;
  return counted;
}

}  // namespace kvd
