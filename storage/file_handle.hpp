#pragma once
// What a backend needs of an opened file, and the two kernel handles that backends share.
//
// A handle belongs to one owner, who closes it; the lock on a file goes with it. wake_event is an
// eventfd: any thread signals, one thread waits.

#include <cstdint>
#include <utility>

namespace kvd {

class file_handle {
public:
  file_handle() = default;
  explicit file_handle(int fd) noexcept : fd_(fd) {}
  file_handle(file_handle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  file_handle& operator=(file_handle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~file_handle();
  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

private:
  int fd_ = -1;
};

// A locked file of its final size.
struct raw_file {
  file_handle handle;
  std::uint64_t bytes = 0;
  std::uint32_t alignment = 4096;
  bool direct = false;  // the handle bypasses the page cache
};

class wake_event {
public:
  // Not open where the kernel has no handle left; errno says why.
  wake_event() noexcept;
  bool open() const noexcept { return static_cast<bool>(handle_); }
  int fd() const noexcept { return handle_.fd(); }
  void signal() const noexcept;
  void clear() const noexcept;

private:
  file_handle handle_;
};

}  // namespace kvd
