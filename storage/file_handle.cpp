#include "storage/file_handle.hpp"

#include <cerrno>

#include <sys/eventfd.h>
#include <unistd.h>

namespace kvd {

file_handle::~file_handle() {
  if (fd_ >= 0) ::close(fd_);
}

wake_event::wake_event() noexcept : handle_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void wake_event::signal() const noexcept {
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) has been signalled already.
  while (::write(fd(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void wake_event::clear() const noexcept {
  std::uint64_t count = 0;
  while (::read(fd(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace kvd
