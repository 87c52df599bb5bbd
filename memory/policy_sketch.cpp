#include "memory/policy_sketch.hpp"

#include <algorithm>
#include <bit>

namespace kvd {

namespace {

constexpr std::size_t counters_per_word = 16;
constexpr std::uint64_t counter_max = 15;
constexpr std::uint64_t uses_per_block = 10;

}  // namespace

void use_sketch::reserve(std::uint32_t capacity) {
  const auto counters = std::bit_ceil(std::max(counters_per_word, std::size_t{capacity} * 2));
  if (counters <= counters_mask_ + 1) return;
  counters_mask_ = counters - 1;
  words_.assign(rows * counters / counters_per_word, 0);
  uses_ = 0;
  uses_max_ = std::max<std::uint64_t>(16, uses_per_block * capacity);
}

std::array<use_sketch::place, use_sketch::rows>
use_sketch::places(std::uint64_t fingerprint) const noexcept {
  std::array<place, rows> out{};
  auto bits = fingerprint;
  for (std::size_t row = 0; row < rows; ++row) {
    bits = (bits ^ (bits >> 31)) * 0xBF58476D1CE4E5B9ULL;
    const auto counter = static_cast<std::size_t>(bits >> 24) & counters_mask_;
    const auto row_start = row * ((counters_mask_ + 1) / counters_per_word);
    out[row] = {row_start + counter / counters_per_word,
                static_cast<std::uint32_t>(counter % counters_per_word) * 4};
  }
  return out;
}

void use_sketch::add(std::uint64_t fingerprint) noexcept {
  if (words_.empty()) return;
  for (const auto& at : places(fingerprint)) {
    if (((words_[at.word] >> at.shift) & counter_max) != counter_max) {
      words_[at.word] += std::uint64_t{1} << at.shift;
    }
  }
  if (++uses_ >= uses_max_) halve();
}

std::uint32_t use_sketch::estimate(std::uint64_t fingerprint) const noexcept {
  if (words_.empty()) return 0;
  auto least = counter_max;
  for (const auto& at : places(fingerprint)) {
    least = std::min(least, (words_[at.word] >> at.shift) & counter_max);
  }
  return static_cast<std::uint32_t>(least);
}

void use_sketch::halve() noexcept {
  // Shifts all sixteen counters of a word at once; the mask drops what crossed over.
  for (auto& word : words_)
    word = (word >> 1) & 0x7777777777777777ULL;
  uses_ /= 2;
}

}  // namespace kvd
