#include "cli/bench_memcpy.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "cli/bench.hpp"

namespace kvd {

result<memcpy_ceiling> memcpy_ceiling::create(std::size_t bytes, unsigned threads,
                                              const clock& time) {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  const auto size = (bytes + huge_page - 1) / huge_page * huge_page;
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    return fail(errc::io,
                fmt::format("an arena of {} bytes for memcpy: {}", size, std::strerror(errno)));
  }
  // Advice: where the kernel has no huge pages left, the ceiling is what plain pages give.
  ::madvise(at, size, MADV_HUGEPAGE);
  std::memset(at, 0, size);
  return memcpy_ceiling({static_cast<std::byte*>(at), size}, threads, time);
}

memcpy_ceiling::memcpy_ceiling(memcpy_ceiling&& other) noexcept
    : arena_(std::exchange(other.arena_, std::span<std::byte>{})), threads_(other.threads_),
      time_(other.time_) {}

memcpy_ceiling::~memcpy_ceiling() {
  if (!arena_.empty()) ::munmap(arena_.data(), arena_.size());
}

double memcpy_ceiling::save_rate(std::span<const std::span<std::byte>> engine) {
  return rate(engine, true);
}

double memcpy_ceiling::load_rate(std::span<const std::span<std::byte>> engine) {
  return rate(engine, false);
}

double memcpy_ceiling::rate(std::span<const std::span<std::byte>> engine, bool to_arena) {
  std::size_t total = 0;
  for (const auto piece : engine)
    total += piece.size();
  const auto share = (total + threads_ - 1) / threads_;
  const auto seconds = time_parallel(time_, threads_, [&](std::size_t i) -> result<void> {
    // This thread's share is [from, to) of all pieces laid end to end.
    const auto from = std::min(i * share, total);
    const auto to = std::min(from + share, total);
    std::size_t begin = 0;
    for (const auto piece : engine) {
      const auto low = std::max(from, begin);
      const auto high = std::min(to, begin + piece.size());
      if (low < high) {
        auto* const tensor = piece.data() + (low - begin);
        auto* const arena = arena_.data() + low;
        std::memcpy(to_arena ? arena : tensor, to_arena ? tensor : arena, high - low);
      }
      begin += piece.size();
    }
    return {};
  });
  return *seconds > 0 ? gigabytes(static_cast<double>(total)) / *seconds : 0;
}

}  // namespace kvd
