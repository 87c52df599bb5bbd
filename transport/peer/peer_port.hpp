#pragma once
// Bytes between the pools of two nodes: one reads from the other's memory.
//
// A port is this node's end. It offers this node's pool under address(), opaque bytes that another
// port opens; a remote is what it opened. Which link is used (a mapping of the pool on the same
// host, RDMA, TCP) is the port's business, as are making the link, losing it and making it anew.
//
// A read is a batch of pieces with one deadline. It says how it ended in on_done, by its deadline
// at the latest; each piece has its own outcome then, so that what arrived can be used although
// the rest did not. A read that ended early may still have requests on their way. Its local memory
// is then in quarantine, until on_released: after that the transport never writes there.
//
//   read() -> true                the read and its memory are the port's
//   on_done(read, outcome)        once; pieces marked `arrived` are whole and will not change, the
//                                 others may still be written to
//   on_released(read)             once, after on_done, at once when nothing is on its way; the
//                                 read and its memory are the caller's again
//
// Threads: open, read, cancel and address from any; callbacks come on the port's own threads
// (kvd-peer; the mapping's copy threads), must not block, and may call read() and cancel(). The
// fake (loopback_peer.hpp) has no threads: callbacks come from its step().
//
// Owner: the composition root. The destructor ends every read with `stopped` and returns when all
// were released. Pool and metrics outlive the port.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/peer_metrics.hpp"

namespace kvd {

// One contiguous run of a node's pool. Offsets of the pool count through all regions.
struct peer_region {
  std::byte* base = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t pool_offset = 0;  // of its first byte
  int memfd = -1;                 // what `base` maps, for readers on the same host; -1: nothing
  std::uint64_t file_offset = 0;  // of `base` in it
};

// The memory that a node offers: pinned, all of it for as long as the port lives. Regions are
// ascending in pool_offset and do not overlap. May be empty: a port that only reads.
struct peer_pool {
  std::vector<peer_region> regions;
};

// REQUIRES: [to, to + bytes) stays valid until on_released; bytes > 0.
struct peer_piece {
  std::uint64_t offset;  // in the remote pool
  std::byte* to;
  std::uint64_t bytes;
};

enum class piece_state : std::uint8_t { missing, arrived };

// The other end. Shared: it stays usable while anybody holds it, whatever happens to its links.
class peer_remote {
public:
  virtual ~peer_remote() = default;
  // Sixteen bytes that only that run of that node has.
  virtual std::string_view boot_id() const noexcept = 0;
  virtual peer_link_kind kind() const noexcept = 0;  // what would be used now
  virtual bool connected() const noexcept = 0;       // a hint
};

struct peer_read {
  std::span<const peer_piece> pieces;  // at most limits::peer_pieces_max
  std::span<piece_state> states;       // as many; the port sets all to `missing` first
  time_point deadline = time_point::max();
  void (*on_done)(peer_read& read, peer_outcome outcome) noexcept = nullptr;
  void (*on_released)(peer_read& read) noexcept = nullptr;
  void* owner = nullptr;

  // The port's, from read() to on_released.
  std::shared_ptr<peer_remote> remote;
  std::atomic<bool> cancel_asked{false};
};

class peer_port {
public:
  virtual ~peer_port() = default;

  // How others reach this pool, at most limits::peer_address_bytes_max.
  virtual const std::string& address() const noexcept = 0;

  // No byte is sent: the link is made by the first read. invalid_argument when the bytes are no
  // address, unavailable when both ends have no link in common; the detail says which there are.
  virtual result<std::shared_ptr<peer_remote>> open(std::string_view address) = 0;

  // False: the queue is full or the port is ending; no callback comes, the read is the caller's.
  [[nodiscard]] virtual bool read(const std::shared_ptr<peer_remote>& from,
                                  peer_read& read) noexcept = 0;

  // The read ends soon, with `cancelled` unless something else comes first. REQUIRES: on_released
  // has not returned yet.
  virtual void cancel(peer_read& read) noexcept = 0;
};

// Short stable name, for logs and labels.
std::string_view name(peer_outcome outcome) noexcept;
std::string_view name(peer_link_kind kind) noexcept;

}  // namespace kvd
