#pragma once
// The other process of `kvd bench net`: offers a pool of known bytes, in a network namespace of its
// own when asked to, with an iperf3 server beside it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace kvd {

struct net_holder_plan {
  std::uint64_t pool_bytes = 0;
  std::size_t streams = 1;
  bool namespaces = false;  // needs root; this process moves to one of its own, too
  bool iperf = true;
};

class net_holder {
public:
  static constexpr std::uint64_t cell_bytes = 4096;  // cell i holds fill_known(i)
  static constexpr std::uint16_t iperf_port = 15201;

  // Forks. REQUIRES: this process has one thread.
  static result<std::unique_ptr<net_holder>> start(const net_holder_plan& plan, const clock& time);
  ~net_holder();
  net_holder(const net_holder&) = delete;
  net_holder& operator=(const net_holder&) = delete;

  const std::string& host() const noexcept { return host_; }
  // Of the port, with every link.
  const std::string& address() const noexcept { return address_; }

private:
  net_holder(pid_t child, int pipe, std::string host) noexcept
      : child_(child), pipe_(pipe), host_(std::move(host)) {}
  pid_t child_;
  int pipe_;  // its end is the child's
  std::string host_;
  std::string address_;
};

// What a program printed. not_found when it is not installed, io with its status when it fails.
result<std::string> printed_by(std::vector<std::string> words);

}  // namespace kvd
