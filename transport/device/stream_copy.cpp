#include "transport/device/stream_copy.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvd {

namespace {

// Below this, the set-up costs more than an uncached destination saves.
constexpr std::uint64_t stream_bytes_min = 1 << 10;

using copy_function = void (*)(std::byte*, const std::byte*, std::uint64_t) noexcept;

void plain_copy(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

// ThreadSanitizer looks at memcpy's ranges as a whole and at every vector here: minutes a test.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

// Four pages are copied side by side: the CPU prefetches within a page only, so that four streams
// keep four times as many lines on their way as one (13 to 15 GB/s instead of 8 to 11 on two cores
// of a Xeon of 2023; glibc's memcpy does so from some tens of MiB on).
constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t pages_abreast = 4;
constexpr std::uint64_t step_bytes = 128;

// Copies up to the first aligned destination address and returns how many bytes that were.
std::uint64_t copy_head(std::byte* to, const std::byte* from, std::uint64_t alignment) {
  const auto head = (alignment - reinterpret_cast<std::uintptr_t>(to) % alignment) % alignment;
  std::memcpy(to, from, head);
  return head;
}

[[gnu::target("avx2")]] inline void avx2_step(std::byte* to, const std::byte* from) noexcept {
  const auto* source = reinterpret_cast<const __m256i*>(from);
  auto* target = reinterpret_cast<__m256i*>(to);
  const auto a = _mm256_loadu_si256(source);
  const auto b = _mm256_loadu_si256(source + 1);
  const auto c = _mm256_loadu_si256(source + 2);
  const auto d = _mm256_loadu_si256(source + 3);
  _mm256_stream_si256(target, a);
  _mm256_stream_si256(target + 1, b);
  _mm256_stream_si256(target + 2, c);
  _mm256_stream_si256(target + 3, d);
}

[[gnu::target("avx512f")]] inline void avx512_step(std::byte* to, const std::byte* from) noexcept {
  const auto a = _mm512_loadu_si512(from);
  const auto b = _mm512_loadu_si512(from + 64);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), a);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 64), b);
}

// Inlined into a caller of the step's target, and the step into it.
template<void (*step)(std::byte*, const std::byte*) noexcept>
[[gnu::always_inline]] inline void copy_abreast(std::byte* to, const std::byte* from,
                                                std::uint64_t bytes) noexcept {
  constexpr auto round_bytes = pages_abreast * page_bytes;
  for (; bytes >= round_bytes; bytes -= round_bytes, to += round_bytes, from += round_bytes) {
    for (std::uint64_t at = 0; at < page_bytes; at += step_bytes) {
      for (std::uint64_t page = 0; page < round_bytes; page += page_bytes)
        step(to + page + at, from + page + at);
    }
  }
  for (; bytes >= step_bytes; bytes -= step_bytes, to += step_bytes, from += step_bytes)
    step(to, from);
  std::memcpy(to, from, bytes);
}

[[gnu::target("avx2")]] void avx2_copy(std::byte* to, const std::byte* from,
                                       std::uint64_t bytes) noexcept {
  const auto head = copy_head(to, from, 32);
  copy_abreast<avx2_step>(to + head, from + head, bytes - head);
}

[[gnu::target("avx512f")]] void avx512_copy(std::byte* to, const std::byte* from,
                                            std::uint64_t bytes) noexcept {
  const auto head = copy_head(to, from, 64);
  copy_abreast<avx512_step>(to + head, from + head, bytes - head);
}

copy_function choose() {
  if (__builtin_cpu_supports("avx512f") != 0) return avx512_copy;
  if (__builtin_cpu_supports("avx2") != 0) return avx2_copy;
  return plain_copy;
}

#else

copy_function choose() {
  return plain_copy;
}

#endif

const copy_function copy_large = choose();

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  if (bytes < stream_bytes_min) {
    plain_copy(to, from, bytes);
  } else {
    copy_large(to, from, bytes);
  }
}

void stream_fence() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace kvd
