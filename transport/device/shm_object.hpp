#pragma once
// A client's POSIX shared-memory object, by name and as an open file.

#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "core/error.hpp"

namespace kvd {

// NAME_MAX of tmpfs, without the leading slash.
inline constexpr std::size_t shm_name_bytes_max = 255;

// `name` without its leading slash, if it has one. errc::invalid_argument when it is empty, too
// long, a dot name, or holds another slash or anything but printable ASCII.
result<std::string> shm_object_name(std::string_view name);

// An open object. Moved, not copied; closes its descriptor.
class shm_object {
public:
  // Opens for reading and writing. errc::device names the object and says why not: missing, not
  // permitted, not a regular object.
  static result<shm_object> open(std::string_view name);
  shm_object(shm_object&& other) noexcept;
  shm_object& operator=(shm_object&& other) noexcept;
  ~shm_object();

  int fd() const noexcept { return fd_; }
  const std::string& name() const noexcept { return name_; }
  // At the time of open().
  std::uint64_t size() const noexcept { return size_; }
  dev_t filesystem() const noexcept { return filesystem_; }
  ino_t inode() const noexcept { return inode_; }
  // True once nobody can find the object by name any more. One fstat.
  bool unlinked() const noexcept;

private:
  shm_object() = default;
  std::string name_;
  std::uint64_t size_ = 0;
  dev_t filesystem_ = 0;
  ino_t inode_ = 0;
  int fd_ = -1;
};

}  // namespace kvd
