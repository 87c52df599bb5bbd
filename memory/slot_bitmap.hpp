#pragma once
// Bitmaps in which a set bit is a free thing, and the runs in them. Pure; the caller locks.

#include <bit>
#include <cstdint>
#include <span>

namespace kvd {

struct bit_run {
  std::uint32_t first;
  std::uint32_t length;  // 0: there is none
};

inline bool test_bit(std::span<const std::uint64_t> words, std::uint32_t at) noexcept {
  return ((words[at / 64] >> (at % 64)) & 1) != 0;
}
inline void set_bit(std::span<std::uint64_t> words, std::uint32_t at) noexcept {
  words[at / 64] |= std::uint64_t{1} << (at % 64);
}
inline void clear_bit(std::span<std::uint64_t> words, std::uint32_t at) noexcept {
  words[at / 64] &= ~(std::uint64_t{1} << (at % 64));
}

// Sets or clears bits [run.first, run.first + run.length).
void set_bits(std::span<std::uint64_t> words, bit_run run) noexcept;
void clear_bits(std::span<std::uint64_t> words, bit_run run) noexcept;

// First set (clear) bit at or after `from`, or `bits` when there is none below it.
std::uint32_t next_set(std::span<const std::uint64_t> words, std::uint32_t bits,
                       std::uint32_t from) noexcept;
std::uint32_t next_clear(std::span<const std::uint64_t> words, std::uint32_t bits,
                         std::uint32_t from) noexcept;

// The first run of set bits at or after `from`; it ends at `bits` at the latest.
inline bit_run next_run(std::span<const std::uint64_t> words, std::uint32_t bits,
                        std::uint32_t from) noexcept {
  const auto first = next_set(words, bits, from);
  return {first, next_clear(words, bits, first) - first};
}

}  // namespace kvd
