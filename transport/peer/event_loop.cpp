#include "transport/peer/event_loop.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace kvd {

void owned_fd::reset(int fd) noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

result<void> event_loop::open() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;  // the wake-up itself
  if (!epoll_ || !wake_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return fail(errc::io, fmt::format("epoll for peers: {}", std::strerror(errno)));
  }
  return {};
}

bool event_loop::watch(int fd, std::uint32_t events, loop_source& source) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &source;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void event_loop::change(int fd, std::uint32_t events, loop_source& source) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &source;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void event_loop::forget(int fd, loop_source& source) noexcept {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  for (std::size_t i = 0; i < ready_count_; ++i) {
    if (ready_[i].data.ptr == &source) ready_[i].data.ptr = nullptr;
  }
}

void event_loop::wake() noexcept {
  const std::uint64_t one = 1;
  // A full counter wakes as well.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void event_loop::wait(duration longest) noexcept {
  using std::chrono::milliseconds;
  // Rounded up, so that what is due at the end is due.
  const auto ms = std::chrono::ceil<milliseconds>(std::clamp<duration>(
      longest, duration::zero(), std::chrono::duration_cast<duration>(std::chrono::minutes(1))));
  const int count = ::epoll_wait(epoll_.get(), ready_.data(), static_cast<int>(batch),
                                 static_cast<int>(ms.count()));
  ready_count_ = count > 0 ? static_cast<std::size_t>(count) : 0;
  bool woken = false;
  for (std::size_t i = 0; i < ready_count_; ++i)
    woken = woken || ready_[i].data.ptr == nullptr;
  if (woken) {
    std::uint64_t count_of_wakes = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count_of_wakes, sizeof count_of_wakes);
  }
  for (std::size_t i = 0; i < ready_count_; ++i) {
    auto* const source = static_cast<loop_source*>(ready_[i].data.ptr);
    if (source != nullptr) source->on_ready(ready_[i].events);
  }
  ready_count_ = 0;
}

}  // namespace kvd
