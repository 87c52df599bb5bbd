#pragma once
// UCX for one port: a context, one worker, this node's registered pool, and the listener.
//
// UCX carries bytes over RDMA devices only, since its own TCP is slower than ours (see
// docs/decisions/0004-links-between-nodes.md); without such a device none of this is made. The
// worker is driven from the port's loop: progress until nothing is left, arm, then epoll. Nothing
// is closed inside a callback of UCX; that waits for tick().
//
// Both ends use UCP_ERR_HANDLING_MODE_PEER. A reader greets by an active message and waits for the
// answer before it asks for anything, so that keys are unpacked for the lanes that there are.
//
// Owner: the port; its thread.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/peer_metrics.hpp"
#include "transport/peer/event_loop.hpp"
#include "transport/peer/peer_address.hpp"
#include "transport/peer/peer_port.hpp"

namespace kvd {

struct ucx_settings {
  std::vector<std::string> devices;  // as UCX names them: mlx5_0:1, eth0
  bool tcp = false;                  // for tests: UCX's TCP instead of RDMA
  std::string listen_host;
  std::uint16_t listen_port = 0;
};

class ucx_link;

class ucx_worker final : public loop_source {
public:
  ucx_worker(event_loop& loop, peer_metrics& metrics, std::span<const peer_region> regions,
             std::string key, std::string boot_id);
  ~ucx_worker() override;
  ucx_worker(const ucx_worker&) = delete;
  ucx_worker& operator=(const ucx_worker&) = delete;

  // io with UCX's own words. Fills port and keys of `out`.
  result<void> open(const ucx_settings& how, peer_address::ucx_section& out);

  void on_ready(std::uint32_t) noexcept override {}
  // Progress, and arming for the next wait. `now` when there is more to do at once.
  time_point tick(time_point now) noexcept;

  // Whose greeting an answer on `endpoint` is for; null: nobody's any more.
  void expect_answer(ucp_ep_h endpoint, ucx_link* link) noexcept;

  ucp_worker_h handle() const noexcept { return worker_; }
  // Of the registered region that holds all of it, or null: then UCX registers by itself.
  ucp_mem_h registration_of(const std::byte* at, std::uint64_t bytes) const noexcept;

private:
  struct registered {
    const std::byte* base;
    std::uint64_t bytes;
    ucp_mem_h handle;
  };
  result<void> open_worker(const ucx_settings& how);
  result<void> offer(peer_address::ucx_section& out);
  result<void> listen(const ucx_settings& how, peer_address::ucx_section& out);
  static void asked(ucp_conn_request_h request, void* self) noexcept;
  static void failed(void* self, ucp_ep_h endpoint, ucs_status_t status) noexcept;
  static ucs_status_t greeted(void* self, const void* head, std::size_t head_bytes, void* data,
                              std::size_t bytes, const ucp_am_recv_param_t* how) noexcept;
  static ucs_status_t answer_came(void* self, const void* head, std::size_t head_bytes, void* data,
                                  std::size_t bytes, const ucp_am_recv_param_t* how) noexcept;
  result<void> handle_messages();
  void close_failed() noexcept;

  event_loop& loop_;
  peer_metrics& metrics_;
  const std::span<const peer_region> regions_;
  const std::string key_;
  const std::string boot_id_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  int event_fd_ = -1;
  std::vector<registered> registered_;
  std::vector<ucp_ep_h> guests_;
  std::vector<ucp_ep_h> failed_;  // guests to be closed by the next tick
  std::vector<void*> closing_;    // requests of those closes
  std::string yes_;               // the answer to a greeting
  std::map<ucp_ep_h, ucx_link*> expecting_;
};

// Ids of the active messages.
inline constexpr unsigned ucx_greeting_id = 1;
inline constexpr unsigned ucx_answer_id = 2;

// What UCX says goes to our log, at debug.
void quiet_ucx_log() noexcept;

}  // namespace kvd
