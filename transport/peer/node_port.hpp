#pragma once
// The port of a node: one thread, kvd-peer, that drives every link to and from other nodes.
//
// Calls hand over through one queue under one lock; everything else belongs to the thread. It
// sleeps in epoll and costs nothing while nobody reads.
//
// Owner: as peer_port says.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/server_metrics.hpp"
#include "transport/device/host_device.hpp"
#include "transport/peer/event_loop.hpp"
#include "transport/peer/mapped_holder.hpp"
#include "transport/peer/node_remote.hpp"
#include "transport/peer/open_peer_port.hpp"
#include "transport/peer/peer_port.hpp"
#include "transport/peer/stream_holder.hpp"
#include "transport/peer/ucx_worker.hpp"

namespace kvd {

class node_port final : public peer_port, private remote_context {
public:
  node_port(const peer_options& options, const peer_pool& pool, const clock& time,
            peer_metrics& metrics);
  ~node_port() override;
  node_port(const node_port&) = delete;
  node_port& operator=(const node_port&) = delete;

  // Binds and starts; called once, before anything else.
  result<void> start(random_source& random);

  const std::string& address() const noexcept override { return encoded_; }
  result<std::shared_ptr<peer_remote>> open(std::string_view address) override;
  bool read(const std::shared_ptr<peer_remote>& from, peer_read& read) noexcept override;
  void cancel(peer_read& read) noexcept override;

private:
  struct allowed_links {
    bool mapped = false;
    bool tcp = false;
    bool rdma = false;
  };
  result<void> choose_links();
  result<void> choose_devices();
  result<void> offer_mapped();
  result<void> offer_rdma();
  result<void> set_hosts(std::vector<std::string>& hosts) const;
  result<void> offer_stream();
  result<peer_link_kind> kind_for(const peer_address& address) const;
  std::unique_ptr<peer_link> make_link(node_remote& remote, link_events& events,
                                       std::string& why) noexcept override;
  void recycle(active_read& read) noexcept override;

  void run() noexcept;
  bool take_inbox() noexcept;
  time_point turn_all(time_point now) noexcept;

  const peer_options options_;
  const peer_pool& pool_;
  const clock& time_;
  peer_metrics& metrics_;
  allowed_links allowed_;
  std::vector<network_device> devices_;  // that links use
  std::vector<std::string> rdma_devices_;
  std::vector<socket_address> local_;  // one address a device, to send from
  peer_address own_;
  std::string encoded_;

  event_loop loop_;
  std::unique_ptr<stream_holder> stream_;
  std::unique_ptr<mapped_holder> mapped_;
  std::unique_ptr<ucx_worker> ucx_;

  std::mutex mutex_;
  std::vector<active_read*> inbox_;                 // GUARDED_BY(mutex_)
  std::vector<active_read*> spare_;                 // GUARDED_BY(mutex_)
  std::vector<std::unique_ptr<active_read>> made_;  // GUARDED_BY(mutex_): all there are
  std::size_t accepted_ = 0;                        // GUARDED_BY(mutex_)
  bool stopping_ = false;                           // GUARDED_BY(mutex_)
  std::atomic<bool> cancels_{false};

  // The thread's.
  std::vector<active_read*> taken_;
  std::vector<std::shared_ptr<node_remote>> remotes_;  // with reads or a link
  bool stop_seen_ = false;
  copy_metrics copy_counts_;             // of copies_; nobody reads them
  std::unique_ptr<host_device> copies_;  // once a mapped link is made
  std::thread thread_;
};

}  // namespace kvd
