#pragma once
// One remote of a node's port: its link, the reads that wait for it, and those on their way.
//
// Reads are served first come first served; of one remote at most inflight_bytes are asked for at
// once, so that a slow one holds nothing but its own memory. When the link ends, reads that had
// something on it end too (link_lost), or all that wait do when it never came up (unreachable); the
// next read makes a new link.
//
// Owner: shared by whoever opened it and, while there are reads or a link, the port. Everything
// but the peer_remote part belongs to the port's thread.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/peer_metrics.hpp"
#include "transport/peer/peer_address.hpp"
#include "transport/peer/peer_link.hpp"
#include "transport/peer/read_cutter.hpp"
#include "transport/peer/socket_address.hpp"

namespace kvd {

// What the remotes of a port share.
class remote_context {
public:
  virtual ~remote_context() = default;
  // Null: there is none; `why` says so.
  virtual std::unique_ptr<peer_link> make_link(node_remote& remote, link_events& events,
                                               std::string& why) noexcept = 0;
  // The read is over and let go of: on_released is due.
  virtual void recycle(active_read& read) noexcept = 0;

  struct settings {
    std::uint64_t inflight_bytes_max;
    cut_limits cut;
    std::chrono::milliseconds connect_timeout;
  };
  settings how{};
  const clock* ticks = nullptr;
  peer_metrics* metrics = nullptr;
  std::vector<std::unique_ptr<peer_transfer>> spare_transfers;
};

class node_remote final : public peer_remote, private link_events {
public:
  // `hosts`: what the address' hosts for this kind of link mean, each with its alternatives.
  node_remote(remote_context& context, peer_address address, peer_link_kind kind,
              std::vector<std::vector<socket_address>> hosts);
  ~node_remote() override;

  std::string_view boot_id() const noexcept override { return address_.boot_id; }
  peer_link_kind kind() const noexcept override { return kind_; }
  bool connected() const noexcept override { return connected_.load(std::memory_order_relaxed); }
  const peer_address& address() const noexcept { return address_; }
  const std::vector<std::vector<socket_address>>& hosts() const noexcept { return hosts_; }

  // The port's thread, from here on.
  void start(active_read& read) noexcept;
  // Ends reads that are due or cancelled (`cancels`: there may be such), sends what can be sent.
  // The time of the next call, if nothing else happens before.
  time_point turn(time_point now, bool cancels) noexcept;
  void stop() noexcept;
  bool idle() const noexcept { return reads_.empty(); }
  bool linked() const noexcept { return link_ != nullptr; }
  void unlink() noexcept;

private:
  void link_up() noexcept override;
  void transfer_over(peer_transfer& transfer, transfer_end end) noexcept override;
  void link_down(peer_outcome why, const std::string& detail) noexcept override;

  void expire(time_point now, bool cancels) noexcept;
  void pump(time_point now) noexcept;
  time_point tick_link(time_point now) noexcept;
  bool can_pump() const noexcept;
  peer_transfer* next_transfer() noexcept;
  void count(active_read& read, peer_transfer& transfer) noexcept;
  void finish(active_read& read, peer_outcome outcome) noexcept;
  void drop(active_read& read, peer_transfer& transfer) noexcept;
  void release(active_read& read) noexcept;
  void end_all(peer_outcome outcome) noexcept;
  peer_metrics::by_kind& counted() noexcept;

  remote_context& context_;
  const peer_address address_;
  const peer_link_kind kind_;
  const std::vector<std::vector<socket_address>> hosts_;
  std::atomic<bool> connected_{false};

  std::unique_ptr<peer_link> link_;
  bool link_over_ = false;
  bool link_useful_ = false;  // a transfer went well on it
  peer_outcome link_why_ = peer_outcome::link_lost;
  std::deque<active_read*> queue_;    // not wholly cut
  std::deque<peer_transfer*> again_;  // to go to a link once more
  std::vector<active_read*> reads_;   // all that are not released
  std::uint64_t inflight_ = 0;        // bytes of transfers at the link
  time_point next_deadline_ = time_point::max();
};

}  // namespace kvd
