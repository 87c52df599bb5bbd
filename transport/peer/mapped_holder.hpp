#pragma once
// The holder's end of links within a host: a Unix socket that hands the pool's memory over.
//
//   reader -> holder   greeting, as stream_wire.hpp says
//   holder -> reader   greeting answer; number of regions u32; file offset u64 of each; with the
//                      memfd of each region as ancillary data
//
// Then nothing more is said: the connection ends when either end does. The socket has mode 0600, in
// a directory of its own with mode 0700; both are removed at the end. A pool with a region that is
// no memfd is not offered.
//
// Owner: the port; its thread, but for open().

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/peer_metrics.hpp"
#include "transport/peer/event_loop.hpp"
#include "transport/peer/peer_address.hpp"
#include "transport/peer/peer_port.hpp"

namespace kvd {

// What one message can carry (SCM_MAX_FD).
inline constexpr std::size_t mapped_regions_max = 253;

// Of the running kernel; empty when it does not say.
std::string running_host_id();
// The socket that `of` means is here, on this host and in this mount namespace.
bool is_reachable(const peer_address::mapped_section& of);

class mapped_holder final : public loop_source {
public:
  mapped_holder(event_loop& loop, const clock& time, peer_metrics& metrics,
                std::span<const peer_region> regions, std::string key, std::string boot_id);
  ~mapped_holder() override;
  mapped_holder(const mapped_holder&) = delete;
  mapped_holder& operator=(const mapped_holder&) = delete;

  // `parent`: where to make the directory; empty: $XDG_RUNTIME_DIR, /run or /tmp. io otherwise.
  result<peer_address::mapped_section> open(const std::string& parent);
  void on_ready(std::uint32_t events) noexcept override;
  time_point tick(time_point now) noexcept;

private:
  class guest;
  result<void> bind(const std::string& parent);

  event_loop& loop_;
  const clock& time_;
  peer_metrics& metrics_;
  const std::span<const peer_region> regions_;
  const std::string key_;
  const std::string boot_id_;
  owned_fd fd_;
  std::string folder_;
  std::string path_;
  std::vector<std::unique_ptr<guest>> guests_;
};

}  // namespace kvd
