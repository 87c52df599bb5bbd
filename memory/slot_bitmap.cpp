#include "memory/slot_bitmap.hpp"

#include <algorithm>

namespace kvd {

namespace {

constexpr std::uint64_t all_ones = ~std::uint64_t{0};

// Calls visit(word, mask) for every word that the run touches.
template<class Visit>
void for_each_word(std::span<std::uint64_t> words, bit_run run, Visit visit) noexcept {
  auto at = run.first;
  auto left = run.length;
  while (left > 0) {
    const auto shift = at % 64;
    const auto count = std::min(left, 64 - shift);
    visit(words[at / 64], (all_ones >> (64 - count)) << shift);
    at += count;
    left -= count;
  }
}

// `flip` is all ones to look for clear bits.
std::uint32_t next(std::span<const std::uint64_t> words, std::uint32_t bits, std::uint32_t from,
                   std::uint64_t flip) noexcept {
  if (from >= bits) return bits;
  auto word = from / 64;
  auto found = (words[word] ^ flip) & (all_ones << (from % 64));
  const auto last = (bits - 1) / 64;
  while (found == 0 && word < last)
    found = words[++word] ^ flip;
  if (found == 0) return bits;
  return std::min(bits, word * 64 + static_cast<std::uint32_t>(std::countr_zero(found)));
}

}  // namespace

void set_bits(std::span<std::uint64_t> words, bit_run run) noexcept {
  for_each_word(words, run, [](std::uint64_t& word, std::uint64_t mask) { word |= mask; });
}

void clear_bits(std::span<std::uint64_t> words, bit_run run) noexcept {
  for_each_word(words, run, [](std::uint64_t& word, std::uint64_t mask) { word &= ~mask; });
}

std::uint32_t next_set(std::span<const std::uint64_t> words, std::uint32_t bits,
                       std::uint32_t from) noexcept {
  return next(words, bits, from, 0);
}

std::uint32_t next_clear(std::span<const std::uint64_t> words, std::uint32_t bits,
                         std::uint32_t from) noexcept {
  return next(words, bits, from, all_ones);
}

}  // namespace kvd
