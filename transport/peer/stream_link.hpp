#pragma once
// A link over plain TCP: one connection a pair of network devices, transfers spread over them.
//
// As many connections as the end with more devices has; the other end's are used in turns. The
// link is up with the first that is, and down with the last. A connection that ends while others
// are up costs nothing: what it had goes to them. One that has sent nothing for a while when a
// read's deadline passes is closed, and what else waits on it goes elsewhere.
//
// Owner: the port; its thread.

#include <memory>
#include <string>
#include <vector>

#include "transport/peer/peer_link.hpp"
#include "transport/peer/socket_address.hpp"
#include "transport/peer/stream_connection.hpp"

namespace kvd {

class stream_link final : public peer_link, private link_events {
public:
  struct target {
    std::vector<std::vector<socket_address>> hosts;  // each with its alternatives
    stream_connection::greeting greeting;
  };
  // `from`: local addresses to send from, one a device; may be empty.
  stream_link(event_loop& loop, link_events& events, const clock& time, target to,
              std::vector<socket_address> from);

  void connect(time_point deadline) noexcept override;
  bool ready() const noexcept override;
  void submit(peer_transfer& transfer) noexcept override;
  bool abandon(peer_transfer& transfer, time_point now) noexcept override;
  time_point tick(time_point now) noexcept override;
  void close() noexcept override { closing_ = true; }
  bool quiet() const noexcept override { return true; }

  std::size_t connections_up() const noexcept;

private:
  struct lane {
    std::unique_ptr<stream_connection> connection;
    std::size_t host = 0;
    std::size_t alternative = 0;  // of the host, next to try
    const socket_address* from = nullptr;
    bool stalled = false;
  };
  void start(lane& of) noexcept;
  stream_connection* least_busy() const noexcept;

  void link_up() noexcept override {}
  void link_down(peer_outcome, const std::string&) noexcept override {}
  void transfer_over(peer_transfer& transfer, transfer_end end) noexcept override;

  event_loop& loop_;
  link_events& events_;
  const clock& time_;
  target to_;
  std::vector<socket_address> from_;
  std::vector<lane> lanes_;
  time_point connect_deadline_{};
  bool up_ = false;
  bool refused_ = false;
  bool down_ = false;
  bool closing_ = false;
  std::string why_;
};

}  // namespace kvd
