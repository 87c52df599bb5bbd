#pragma once
// The ceiling of every copy: plain memcpy by as many threads as the server has copy threads,
// between shared memory and a private arena of (transparent) huge pages, as an engine's tensor and
// the pool are. Each thread copies one contiguous share, which is the kindest case there is.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace kvd {

class memcpy_ceiling {
public:
  // Maps and touches an arena of `bytes`. REQUIRES: threads > 0. errc::io when memory is short.
  static result<memcpy_ceiling> create(std::size_t bytes, unsigned threads, const clock& time);
  memcpy_ceiling(memcpy_ceiling&& other) noexcept;
  memcpy_ceiling& operator=(memcpy_ceiling&&) = delete;
  ~memcpy_ceiling();

  // GB/s of copying all of `engine` (pieces of shared memory) to the arena, or the arena to it.
  // REQUIRES: together the pieces are no larger than the arena.
  double save_rate(std::span<const std::span<std::byte>> engine);
  double load_rate(std::span<const std::span<std::byte>> engine);

private:
  memcpy_ceiling(std::span<std::byte> arena, unsigned threads, const clock& time) noexcept
      : arena_(arena), threads_(threads), time_(time) {}
  double rate(std::span<const std::span<std::byte>> engine, bool to_arena);

  std::span<std::byte> arena_;
  unsigned threads_;
  const clock& time_;
};

}  // namespace kvd
