#include "transport/device/shm_object.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/device/printable.hpp"

namespace kvd {

namespace {

error system_error_of(const std::string& name, int number) {
  return {errc::device, fmt::format("shared memory {}: {}", printable(name),
                                    std::generic_category().message(number))};
}

}  // namespace

result<std::string> shm_object_name(std::string_view name) {
  const auto bare = name.starts_with('/') ? name.substr(1) : name;
  const auto refuse = [name](std::string_view why) {
    return fail(errc::invalid_argument,
                fmt::format("shared memory name {} {}", printable(name), why));
  };
  if (bare.empty()) return refuse("is empty");
  if (bare.size() > shm_name_bytes_max) {
    return refuse(
        fmt::format("has {} bytes, at most {} are allowed", bare.size(), shm_name_bytes_max));
  }
  if (bare == "." || bare == "..") return refuse("is a directory");
  if (bare.find('/') != std::string_view::npos) {
    return refuse("has a slash that is not the leading one");
  }
  if (!std::all_of(bare.begin(), bare.end(), [](char c) { return c >= ' ' && c <= '~'; })) {
    return refuse("has a byte that is not printable ASCII");
  }
  return std::string(bare);
}

result<shm_object> shm_object::open(std::string_view name) {
  auto bare = shm_object_name(name);
  if (!bare) return fail(errc::device, std::move(bare.error().detail));
  shm_object object;
  object.name_ = std::move(*bare);
  object.fd_ = ::shm_open(("/" + object.name_).c_str(), O_RDWR, 0);
  if (object.fd_ < 0) return tl::unexpected<error>(system_error_of(object.name_, errno));
  struct stat status {};
  if (::fstat(object.fd_, &status) != 0) {
    return tl::unexpected<error>(system_error_of(object.name_, errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(errc::device, fmt::format("shared memory {}: not a shared-memory object",
                                          printable(object.name_)));
  }
  object.size_ = static_cast<std::uint64_t>(status.st_size);
  object.filesystem_ = status.st_dev;
  object.inode_ = status.st_ino;
  return object;
}

shm_object::shm_object(shm_object&& other) noexcept
    : name_(std::move(other.name_)), size_(other.size_), filesystem_(other.filesystem_),
      inode_(other.inode_), fd_(std::exchange(other.fd_, -1)) {}

shm_object& shm_object::operator=(shm_object&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(size_, other.size_);
  std::swap(filesystem_, other.filesystem_);
  std::swap(inode_, other.inode_);
  std::swap(fd_, other.fd_);
  return *this;
}

shm_object::~shm_object() {
  if (fd_ >= 0) ::close(fd_);
}

bool shm_object::unlinked() const noexcept {
  struct stat status {};
  // A descriptor that is open cannot fail fstat; if it does, nobody can be waiting on it.
  return ::fstat(fd_, &status) != 0 || status.st_nlink == 0;
}

}  // namespace kvd
