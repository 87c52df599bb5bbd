#pragma once
// A link within a host: the holder's pool is mapped here, and copy threads copy from it.
//
// The holder takes no part in a read, so that one which hangs costs nothing. When it dies its
// socket ends; the mapping goes once the copies that run have drained. Copies are guarded: a page
// that cannot be had ends the read, not the process.
//
// Owner: the port; its thread. Copies run on the threads of a host_device that all mapped links of
// the port share.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/device/host_device.hpp"
#include "transport/peer/event_loop.hpp"
#include "transport/peer/peer_link.hpp"
#include "transport/peer/pool_mapping.hpp"
#include "transport/peer/stream_wire.hpp"

namespace kvd {

class mapped_link final : public peer_link, public loop_source {
public:
  // `copies` outlives the link.
  mapped_link(event_loop& loop, link_events& events, host_device& copies,
              const peer_address& address);
  ~mapped_link() override;

  void connect(time_point deadline) noexcept override;
  bool ready() const noexcept override;
  void submit(peer_transfer& transfer) noexcept override;
  bool abandon(peer_transfer& transfer, time_point now) noexcept override;
  time_point tick(time_point now) noexcept override;
  void close() noexcept override;
  bool quiet() const noexcept override { return running_ == 0; }
  void on_ready(std::uint32_t events) noexcept override;

private:
  struct copy {
    copy_job job;
    mapped_link* link = nullptr;
    peer_transfer* transfer = nullptr;
    std::atomic<bool> abandoned{false};
    copy_outcome outcome = copy_outcome::done;
  };
  bool receive_pool();
  void lose(std::string why) noexcept;
  static void copied(copy_job& job, copy_outcome outcome) noexcept;

  event_loop& loop_;
  link_events& events_;
  host_device& copies_;
  const peer_address& address_;
  owned_fd fd_;
  time_point deadline_{};
  std::unique_ptr<pool_mapping> pool_;  // once handed over
  bool up_ = false;
  bool refused_ = false;
  bool lost_ = false;
  bool down_ = false;
  std::string why_;

  std::vector<std::unique_ptr<copy>> made_;
  std::vector<copy*> spare_;
  std::size_t running_ = 0;
  std::vector<peer_transfer*> bad_;  // not of the pool: refused with the next tick
  std::mutex mutex_;
  std::vector<copy*> over_;  // GUARDED_BY(mutex_), by copy threads
  std::vector<copy*> taken_;
};

}  // namespace kvd
