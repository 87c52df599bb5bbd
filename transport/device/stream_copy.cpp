#include "transport/device/stream_copy.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvd {

namespace {

// Below this, the set-up and the uncached destination cost more than they save.
constexpr std::uint64_t stream_bytes_min = 8 << 10;

using copy_function = void (*)(std::byte*, const std::byte*, std::uint64_t) noexcept;

void plain_copy(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

// ThreadSanitizer looks at memcpy's ranges as a whole and at every vector here: minutes a test.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

// How far ahead of the loads the source is fetched, without keeping it in the caches.
constexpr std::uint64_t prefetch_bytes = 1024;

// Copies up to the first aligned destination address and returns how many bytes that were.
std::uint64_t copy_head(std::byte* to, const std::byte* from, std::uint64_t alignment) {
  const auto head = (alignment - reinterpret_cast<std::uintptr_t>(to) % alignment) % alignment;
  std::memcpy(to, from, head);
  return head;
}

[[gnu::target("avx2")]] void avx2_copy(std::byte* to, const std::byte* from,
                                       std::uint64_t bytes) noexcept {
  const auto head = copy_head(to, from, 32);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= 128; bytes -= 128, to += 128, from += 128) {
    const auto* source = reinterpret_cast<const __m256i*>(from);
    auto* target = reinterpret_cast<__m256i*>(to);
    const auto a = _mm256_loadu_si256(source);
    const auto b = _mm256_loadu_si256(source + 1);
    const auto c = _mm256_loadu_si256(source + 2);
    const auto d = _mm256_loadu_si256(source + 3);
    _mm_prefetch(reinterpret_cast<const char*>(from + prefetch_bytes), _MM_HINT_NTA);
    _mm_prefetch(reinterpret_cast<const char*>(from + prefetch_bytes + 64), _MM_HINT_NTA);
    _mm256_stream_si256(target, a);
    _mm256_stream_si256(target + 1, b);
    _mm256_stream_si256(target + 2, c);
    _mm256_stream_si256(target + 3, d);
  }
  std::memcpy(to, from, bytes);
}

[[gnu::target("avx512f")]] void avx512_copy(std::byte* to, const std::byte* from,
                                            std::uint64_t bytes) noexcept {
  const auto head = copy_head(to, from, 64);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= 256; bytes -= 256, to += 256, from += 256) {
    const auto a = _mm512_loadu_si512(from);
    const auto b = _mm512_loadu_si512(from + 64);
    const auto c = _mm512_loadu_si512(from + 128);
    const auto d = _mm512_loadu_si512(from + 192);
    for (std::uint64_t line = 0; line < 256; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(from + prefetch_bytes + line), _MM_HINT_NTA);
    }
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 64), b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 128), c);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 192), d);
  }
  std::memcpy(to, from, bytes);
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
