#pragma once
// The holder's end of TCP links: accepts, checks who asks, and sends what is asked for.
//
// Long runs of a pool that is a memfd are sent as its pages: the kernel copies once, at the reader.
// The connection's queue refers to the pool then, as a mapping or an RDMA read does: what is read
// must stay pinned until the reader says that it is done, and the reader's deadline lies before the
// time at which the holder stops waiting for that. Short runs, and other pools, are copied.
//
// Every request is checked against the pool. A connection that says anything malformed, or nothing
// within the greeting's time, is closed.
//
// Owner: the port; its thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/peer_metrics.hpp"
#include "transport/peer/event_loop.hpp"
#include "transport/peer/peer_port.hpp"
#include "transport/peer/socket_address.hpp"
#include "transport/peer/stream_wire.hpp"

namespace kvd {

class stream_holder final : public loop_source {
public:
  // What the holder's connections share.
  struct terms {
    event_loop& loop;
    const clock& time;
    peer_metrics& metrics;
    std::span<const peer_region> regions;  // outlive the holder
    std::string key;
    std::string boot_id;
  };

  explicit stream_holder(terms of);
  ~stream_holder() override;
  stream_holder(const stream_holder&) = delete;
  stream_holder& operator=(const stream_holder&) = delete;

  // Binds and listens; io when the port is in use, not_found for an unknown host.
  result<void> listen(const std::string& host, std::uint16_t port);
  std::uint16_t port() const noexcept { return port_; }
  void on_ready(std::uint32_t events) noexcept override;
  // Closes who greets too slowly; the time of the next one.
  time_point tick(time_point now) noexcept;
  std::size_t connections() const noexcept { return asked_by_.size(); }

private:
  class guest;
  terms terms_;
  owned_fd fd_;
  std::uint16_t port_ = 0;
  std::vector<std::unique_ptr<guest>> asked_by_;
  bool full_logged_ = false;
};

}  // namespace kvd
