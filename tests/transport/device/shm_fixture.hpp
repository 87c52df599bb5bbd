#pragma once
// A POSIX shared-memory object as a client would have it: created, mapped and removed here.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kvd::test {

class shm_fixture {
public:
  explicit shm_fixture(std::uint64_t bytes) : shm_fixture(bytes, unused_name()) {}
  shm_fixture(std::uint64_t bytes, std::string name) : name_(std::move(name)), bytes_(bytes) {
    fd_ = ::shm_open(("/" + name_).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    REQUIRE(fd_ >= 0);
    resize(bytes);
    if (bytes == 0) return;
    auto* begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    REQUIRE(begin != MAP_FAILED);
    begin_ = static_cast<std::byte*>(begin);
  }
  shm_fixture(const shm_fixture&) = delete;
  shm_fixture& operator=(const shm_fixture&) = delete;
  ~shm_fixture() {
    if (begin_ != nullptr) ::munmap(begin_, bytes_);
    ::close(fd_);
    unlink();
  }

  static std::string unused_name() {
    static std::atomic<unsigned> count{0};
    return fmt::format("kvd_test_{}_{}", ::getpid(), count.fetch_add(1));
  }

  const std::string& name() const { return name_; }
  std::byte* data() const { return begin_; }
  std::span<std::byte> bytes() const { return {begin_, bytes_}; }
  int fd() const { return fd_; }
  void resize(std::uint64_t bytes) const {
    REQUIRE(::ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
  }
  void unlink() const { ::shm_unlink(("/" + name_).c_str()); }

private:
  std::string name_;
  std::uint64_t bytes_;
  std::byte* begin_ = nullptr;
  int fd_ = -1;
};

}  // namespace kvd::test
