#pragma once
// The reader's end of one TCP connection: requests out, bytes straight into the pool.
//
// The kernel writes into local memory only while this thread calls recvmsg(), so that a transfer
// can be abandoned at any time: what still comes for it goes into a scratch buffer. No memory is
// ever in quarantine here.
//
// Owner: a stream_link; the port's thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "transport/peer/event_loop.hpp"
#include "transport/peer/peer_link.hpp"
#include "transport/peer/socket_address.hpp"
#include "transport/peer/stream_wire.hpp"

namespace kvd {

class stream_connection final : public loop_source {
public:
  enum class state : std::uint8_t { connecting, greeting, up, down };
  struct greeting {
    std::string key;
    std::string boot_id;
  };

  // `events`: only transfer_over is called.
  stream_connection(event_loop& loop, link_events& events, const clock& time);
  ~stream_connection() override;

  // `from`: which local address to use; may be empty. False: down at once, why() says why.
  bool connect(const socket_address& to, const socket_address* from, const greeting& say) noexcept;
  void submit(peer_transfer& transfer) noexcept;
  void abandon(peer_transfer& transfer) noexcept;  // REQUIRES: submitted here
  // Gives back what it has, as `end`, and closes.
  void fail(transfer_end end, std::string why) noexcept;
  void on_ready(std::uint32_t events) noexcept override;

  state now() const noexcept { return state_; }
  bool refused() const noexcept { return refused_; }
  std::uint64_t outstanding() const noexcept { return outstanding_; }
  time_point last_byte() const noexcept { return last_byte_; }
  const std::string& why() const noexcept { return why_; }
  // Set by submit(), which must not call events: fail() is due.
  bool broken() const noexcept { return broken_; }

private:
  struct pending {
    peer_transfer* transfer;  // null: abandoned
    std::uint64_t bytes;
    std::uint64_t id;
  };
  void connected() noexcept;
  bool send_more() noexcept;
  bool receive_some() noexcept;
  bool take_greeting() noexcept;
  bool take_head() noexcept;
  std::size_t build_iov() noexcept;
  void advance(std::uint64_t bytes) noexcept;
  void finish_front(transfer_end end) noexcept;
  void want_write(bool on) noexcept;

  static constexpr std::size_t iov_max = 512;
  event_loop& loop_;
  link_events& events_;
  const clock& time_;
  owned_fd fd_;
  state state_ = state::down;
  bool refused_ = false;
  bool broken_ = false;
  bool writing_ = false;
  std::string why_;
  std::string out_;  // bytes to send
  std::size_t sent_ = 0;
  std::deque<pending> pending_;
  std::uint64_t outstanding_ = 0;  // bytes of pending_ that have not arrived
  std::uint64_t next_id_ = 1;
  time_point last_byte_{};

  std::array<char, stream_wire::answer_bytes> head_{};
  std::size_t head_got_ = 0;
  std::uint64_t payload_left_ = 0;  // of the front of pending_
  std::size_t fragment_ = 0;        // of the front's transfer, being received
  std::uint64_t fragment_got_ = 0;
  std::array<iovec, iov_max> iov_{};
};

}  // namespace kvd
