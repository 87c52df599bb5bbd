#pragma once
// A link over UCX: one endpoint, one-sided gets straight into local memory.
//
// The device may write until a get has completed, so that an abandoned transfer stays in
// quarantine until its gets have; when that takes longer than a moment, the endpoint is closed by
// force, which ends them all. UCX never notices a peer that hangs: connecting has a deadline here,
// reads have theirs in the port.
//
// Owner: the port; its thread.

#include <memory>
#include <string>
#include <vector>

#include "transport/peer/peer_link.hpp"
#include "transport/peer/socket_address.hpp"
#include "transport/peer/ucx_worker.hpp"

namespace kvd {

class ucx_link final : public peer_link {
public:
  ucx_link(ucx_worker& worker, event_loop& loop, link_events& events, const peer_address& address,
           std::vector<socket_address> hosts);
  ~ucx_link() override;

  void connect(time_point deadline) noexcept override;
  bool ready() const noexcept override;
  void submit(peer_transfer& transfer) noexcept override;
  bool abandon(peer_transfer& transfer, time_point now) noexcept override;
  time_point tick(time_point now) noexcept override;
  void close() noexcept override;
  bool quiet() const noexcept override { return endpoint_ == nullptr && gets_ == 0; }

  // An answer to a greeting came on this endpoint.
  void answered(bool yes) noexcept;

private:
  struct batch {
    ucx_link* link = nullptr;
    peer_transfer* transfer = nullptr;
    std::size_t left = 0;  // gets that have not completed, and one while they are posted
    bool failed = false;
    bool abandoned = false;
  };
  struct get {
    batch* of = nullptr;
    std::size_t fragment = 0;
  };
  void lose(std::string why) noexcept;
  void unpack_keys() noexcept;
  bool post(batch& of, std::size_t fragment) noexcept;
  void ended(get& of, ucs_status_t status) noexcept;
  void over(batch& of) noexcept;
  void give_back() noexcept;
  static void failed(void* self, ucp_ep_h endpoint, ucs_status_t status) noexcept;
  static void completed(void* request, ucs_status_t status, void* of) noexcept;

  ucx_worker& worker_;
  event_loop& loop_;
  link_events& events_;
  const peer_address& address_;
  std::vector<socket_address> hosts_;
  std::size_t next_host_ = 0;
  std::string greeting_;
  ucp_ep_h endpoint_ = nullptr;
  void* closing_ = nullptr;  // the request of the forced close
  time_point deadline_{};
  time_point quarantine_until_ = time_point::max();
  std::vector<ucp_rkey_h> keys_;  // one a region; made when the holder answered
  bool answered_ = false;
  bool up_ = false;
  bool lost_ = false;
  bool down_ = false;
  std::string why_;

  std::vector<std::unique_ptr<batch>> batches_;
  std::vector<batch*> spare_batches_;
  std::vector<std::unique_ptr<get>> made_gets_;
  std::vector<get*> spare_gets_;
  std::size_t gets_ = 0;
  std::vector<batch*> over_;  // to be given back by the next tick
};

}  // namespace kvd
