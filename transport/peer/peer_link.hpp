#pragma once
// What a port's thread knows of a link: something that carries transfers and may end.
//
// A transfer is a part of one read: some fragments, each one run of the remote pool and of local
// memory. The port cuts reads into transfers (read_cutter.hpp) and hands them to the link; the link
// gives each back exactly once, by transfer_over, with the fragments marked that are whole.
//
// All on the port's thread. A link never calls its events from inside a call of its own.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/peer_metrics.hpp"
#include "transport/peer/peer_port.hpp"

namespace kvd {

struct active_read;

struct peer_fragment {
  std::uint64_t offset;  // in the remote pool
  std::byte* to;
  std::uint64_t bytes;
  std::size_t piece;   // the first one that it covers, at least in part
  std::uint64_t skip;  // bytes of that piece that are not of this fragment
  bool done = false;
};

struct peer_transfer {
  active_read* of = nullptr;
  std::vector<peer_fragment> fragments;  // at most read_cutter's bound
  std::uint64_t bytes = 0;
  void* link_state = nullptr;  // the link's
};

enum class transfer_end : std::uint8_t {
  done,     // all fragments are
  lost,     // the link ended under it
  again,    // nothing wrong with the read: hand it to a link once more
  refused,  // by the holder
};

class link_events {
public:
  virtual ~link_events() = default;
  virtual void link_up() noexcept = 0;
  virtual void transfer_over(peer_transfer& transfer, transfer_end end) noexcept = 0;
  // The link is over; all its transfers were given back or abandoned before. `why` is unreachable
  // when it never came up.
  virtual void link_down(peer_outcome why, const std::string& detail) noexcept = 0;
};

class peer_link {
public:
  // May only be destroyed when quiet().
  virtual ~peer_link() = default;
  // Begins; link_up or link_down follow.
  virtual void connect(time_point deadline) noexcept = 0;
  virtual bool ready() const noexcept = 0;  // takes a transfer now
  virtual void submit(peer_transfer& transfer) noexcept = 0;
  // The read is over. True: the memory is let go of, the transfer is the port's again and no
  // transfer_over comes. False: it is still written to; transfer_over comes when it no longer is.
  virtual bool abandon(peer_transfer& transfer, time_point now) noexcept = 0;
  // Carries out what became due by time; called after every wait. The time of the next one.
  virtual time_point tick(time_point now) noexcept = 0;
  // Ends the link at once: link_down(link_lost) comes from a later tick.
  virtual void close() noexcept = 0;
  // Nothing of it writes to memory any more.
  virtual bool quiet() const noexcept = 0;
};

}  // namespace kvd
