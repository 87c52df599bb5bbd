#pragma once
// Memory that an io_uring holds pinned, so that operations on it need not look its pages up.
//
// Regions are registered in buffers of at most 1 GiB, the kernel's limit, one after the other: the
// first that is refused (RLIMIT_MEMLOCK) ends it, and those before it serve. An operation is fixed
// when all its memory lies in one buffer.
//
// Owner: the ring's. The memory outlives the ring.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <liburing.h>

#include "core/error.hpp"

namespace kvd {

class ring_buffers {
public:
  static constexpr std::uint64_t buffer_bytes_max = std::uint64_t{1} << 30;

  // For a ring that is new: nothing is registered.
  void forget() noexcept;
  // io: the kernel refused; the detail holds errno's text.
  result<void> add(io_uring& ring, std::span<std::byte> region) noexcept;
  // The number of the buffer that holds all these bytes.
  std::optional<int> holding(const void* at, std::uint64_t bytes) const noexcept;
  std::size_t count() const noexcept { return buffers_.size(); }

private:
  struct buffer {
    std::byte* at;
    std::uint64_t bytes;
    int number;  // in the ring's table
  };
  std::vector<buffer> buffers_;  // by address
  bool table_ = false;           // the ring has one
};

}  // namespace kvd
