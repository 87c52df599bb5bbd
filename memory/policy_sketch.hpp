#pragma once
// How often a fingerprint was seen lately: a count-min sketch of four rows of 4-bit counters, all
// halved after every ten uses a block of capacity, so that old fame fades.
//
// 4 to 8 bytes a block of capacity. Owner: an eviction policy, single-threaded. Only reserve
// allocates.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvd {

class use_sketch {
public:
  // Growing forgets the counts: a wider table has no place for them.
  void reserve(std::uint32_t capacity);
  void add(std::uint64_t fingerprint) noexcept;
  // Never below the true count since the last halving, up to 15.
  std::uint32_t estimate(std::uint64_t fingerprint) const noexcept;
  std::size_t memory_bytes() const noexcept { return words_.capacity() * sizeof(std::uint64_t); }

private:
  static constexpr std::size_t rows = 4;
  struct place {
    std::size_t word;
    std::uint32_t shift;
  };
  std::array<place, rows> places(std::uint64_t fingerprint) const noexcept;
  void halve() noexcept;

  std::vector<std::uint64_t> words_;  // 16 counters each, row after row
  std::size_t counters_mask_ = 0;     // of one row
  std::uint64_t uses_ = 0;
  std::uint64_t uses_max_ = 0;
};

}  // namespace kvd
