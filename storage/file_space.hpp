#pragma once
// What a file system says of one open file: its room, its alignment, whether it bypasses its cache.
//
// Blocking calls on the caller's thread. Errors as open_file says.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace kvd {

// `path: what: errno's text`.
error file_error(std::string_view path, std::string_view what, int number);

// Gives the file `wanted` bytes that later writes need not find room for. Leaves it as it was when
// that fails. REQUIRES: the file has at most `wanted` bytes, a multiple of 4096.
result<void> grow_file(int fd, const std::string& path, std::uint64_t wanted,
                       std::uint64_t free_floor);

struct transfer_mode {
  std::uint32_t alignment = 4096;  // 512 to 4096
  bool direct = false;
  std::string why_buffered;
};

// Sets O_DIRECT where it is wanted, accepted, and means something.
transfer_mode choose_transfer_mode(int fd, bool direct_wanted) noexcept;

}  // namespace kvd
