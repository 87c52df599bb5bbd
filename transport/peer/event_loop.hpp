#pragma once
// epoll with an eventfd to wake it: what the thread of a port waits on.
//
// Owner: the port. All calls but wake() come from the thread that waits.

#include <array>
#include <cstddef>
#include <cstdint>

#include <sys/epoll.h>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace kvd {

// A descriptor of its own. Closes what it holds.
class owned_fd {
public:
  owned_fd() = default;
  explicit owned_fd(int fd) noexcept : fd_(fd) {}
  owned_fd(owned_fd&& other) noexcept : fd_(other.release()) {}
  owned_fd& operator=(owned_fd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~owned_fd() { reset(); }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1) noexcept;

private:
  int fd_ = -1;
};

class loop_source {
public:
  virtual ~loop_source() = default;
  // Events as epoll's. May call anything of the loop, and destroy this source after forget().
  virtual void on_ready(std::uint32_t events) noexcept = 0;
};

class event_loop {
public:
  event_loop() = default;
  event_loop(const event_loop&) = delete;
  event_loop& operator=(const event_loop&) = delete;
  result<void> open();

  // False: the kernel refuses (out of watches).
  bool watch(int fd, std::uint32_t events, loop_source& source) noexcept;
  void change(int fd, std::uint32_t events, loop_source& source) noexcept;
  // No on_ready of `source` comes any more, not even one that was already due.
  void forget(int fd, loop_source& source) noexcept;

  // Ends the present wait(), or the next one.
  void wake() noexcept;
  // Runs on_ready of what is ready; waits up to `longest` when nothing is.
  void wait(duration longest) noexcept;

private:
  static constexpr std::size_t batch = 64;
  owned_fd epoll_;
  owned_fd wake_;
  std::array<epoll_event, batch> ready_{};
  std::size_t ready_count_ = 0;
};

}  // namespace kvd
