#pragma once
// The peer_port of a server: a mapping for peers on this host, UCX for all others.
//
// Errors are invalid_argument (a network device that does not exist: the detail names those that
// do; a link nobody knows), io (the port is in use, the kernel refuses), not_configured (no link
// is left to offer).

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/peer_metrics.hpp"
#include "core/random.hpp"
#include "transport/peer/peer_port.hpp"

namespace kvd {

struct peer_options {
  // Which links may be used: `auto` (all), or some of `shm`, `tcp`, `rdma`. Both ends must allow
  // a link.
  std::vector<std::string> links = {"auto"};
  // Network devices for UCX by the names that `ip link` or `ibv_devices` show (eth0, mlx5_0,
  // mlx5_0:1); empty: every device but the loopback, or that one when there is no other.
  std::vector<std::string> nics;
  // What UCX's listener binds: 0.0.0.0 or :: means all interfaces; port 0: the system picks one.
  std::string listen_host = "0.0.0.0";
  // RDMA links use the next one.
  std::uint16_t listen_port = 0;
  // What others are told to connect to: names or literals, tried in this order. Empty: the
  // addresses of `nics`.
  std::vector<std::string> advertise;
  // Where the socket for peers on this host lies: a directory of its own is made in it, with mode
  // 0700. Empty: $XDG_RUNTIME_DIR, /run or /tmp, whichever can be written to.
  std::string socket_dir;
  std::string boot_id;  // sixteen bytes; empty: drawn from `random`

  // For tests of the RDMA link where there is no such device: UCX carries it over its TCP.
  bool rdma_over_tcp = false;

  unsigned copy_threads = 2;                    // of the mapping; started with its first remote
  std::uint64_t inflight_bytes_max = 64 << 20;  // a remote
  std::uint64_t piece_bytes_max = 4 << 20;      // larger pieces are split
  std::size_t reads_max = 4096;                 // accepted and not ended
  std::chrono::milliseconds connect_timeout{2000};
};

result<std::unique_ptr<peer_port>> open_peer_port(const peer_options& options,
                                                  const peer_pool& pool, const clock& time,
                                                  random_source& random, peer_metrics& metrics);

// The names that peer_options::nics may have on this machine.
std::vector<std::string> peer_device_names();

// The UCX library installs handlers for SIGSEGV, SIGBUS, SIGFPE and SIGILL when it is loaded, which
// print and hang on; this puts the system's own back. Call it first in main, before any handler of
// ours is there and before any thread.
void reset_peer_library_signals() noexcept;

}  // namespace kvd
