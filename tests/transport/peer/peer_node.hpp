#pragma once
// A node's port for tests, in this process or in one of its own that can be stopped and killed.

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/random.hpp"
#include "tests/transport/peer/tracked_read.hpp"
#include "transport/peer/open_peer_port.hpp"

namespace kvd {

// `link`: shm, tcp, rdma (over UCX's TCP, as there is no device), or auto.
inline peer_options only(const std::string& link) {
  peer_options options;
  options.links = {link};
  options.listen_host = "127.0.0.1";
  options.rdma_over_tcp = link == "rdma";
  return options;
}

struct peer_node {
  peer_node(const peer_options& options, const peer_pool& pool) {
    auto opened = open_peer_port(options, pool, time, random, metrics);
    REQUIRE_MESSAGE(opened.has_value(), (opened ? "" : opened.error().detail));
    port = std::move(*opened);
  }
  std::uint64_t ended(peer_outcome how) const {
    return metrics.reads[static_cast<std::size_t>(how)].value();
  }
  system_clock time;
  system_random random;
  peer_metrics metrics;
  std::unique_ptr<peer_port> port;
};

using wanted_pieces = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

inline wanted_pieces pieces_of(std::uint64_t total, std::uint64_t each, std::uint64_t step) {
  wanted_pieces out;
  for (std::uint64_t at = 0; at + each <= total; at += step)
    out.emplace_back(at, each);
  return out;
}

// A holder in a process of its own, whose pool known_pool(bytes, seed) gives here, too. REQUIRES:
// no other thread runs while it starts.
class holder_process {
public:
  holder_process(const std::string& link, std::size_t bytes, std::uint64_t seed) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::close(ends[0]);
      hold(link, bytes, seed, ends[1]);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
    std::uint32_t size = 0;
    REQUIRE(::recv(pipe_, &size, sizeof size, MSG_WAITALL) == sizeof size);
    address_.resize(size);
    REQUIRE(::recv(pipe_, address_.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
  }
  ~holder_process() {
    kill();
    ::close(pipe_);
  }
  holder_process(const holder_process&) = delete;
  holder_process& operator=(const holder_process&) = delete;

  const std::string& address() const { return address_; }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);  // until it has stopped
  }
  void go_on() const { ::kill(pid_, SIGCONT); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

private:
  [[noreturn]] static void hold(const std::string& link, std::size_t bytes, std::uint64_t seed,
                                int pipe) {
    const known_pool pool(bytes, seed);
    const system_clock time;
    system_random random;
    peer_metrics metrics;
    auto port = open_peer_port(only(link), pool.offered(), time, random, metrics);
    if (!port) ::_exit(1);
    const auto& address = (*port)->address();
    const auto size = static_cast<std::uint32_t>(address.size());
    if (::send(pipe, &size, sizeof size, 0) < 0 || ::send(pipe, address.data(), size, 0) < 0) {
      ::_exit(1);
    }
    char nothing = 0;
    while (::recv(pipe, &nothing, 1, 0) < 0 && errno == EINTR) {
    }
    port->reset();
    ::_exit(0);
  }

  pid_t pid_ = -1;
  int pipe_ = -1;
  std::string address_;
};

}  // namespace kvd
