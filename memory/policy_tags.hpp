#pragma once
// Which fingerprints left lately: 16-bit tags in four generations of buckets, the oldest of which
// is forgotten as a whole. A tenth of the memory of exact ghosts.
//
// All blocks of a prompt leave together, so they must be forgotten together too: one forgotten
// before its neighbours would be evicted before them next time and leave a hole in the prefix. So
// there is no forgetting by chance: each tag has two buckets to choose from and goes to the emptier
// one, which evens them out so well that none overflows. A fingerprint never seen is taken for one
// seen with a probability of 0.3 %; that costs a place for a while, not a hole.
//
//   bucket, 64 bytes:  | tag 0 | tag 1 | ... | tag 30 | generation and use |    16 bits each
//
// 2.4 bytes a fingerprint. Owner: an eviction policy, single-threaded. Only reserve allocates.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvd {

class ghost_tags {
public:
  // Remembers the last `capacity` fingerprints, or a quarter less. Growing keeps most of them.
  void reserve(std::size_t capacity);
  void add(std::uint64_t fingerprint) noexcept;
  bool has(std::uint64_t fingerprint) const noexcept;
  std::size_t memory_bytes() const noexcept;

private:
  static constexpr std::size_t generations = 4;
  static constexpr std::size_t tags_per_bucket = 31;
  // The last word counts the tags in its low byte; its high byte is their generation. A bucket of
  // another generation is empty. A tag is never 0, so that unused places match nothing.
  struct alignas(64) bucket {
    std::array<std::uint16_t, tags_per_bucket + 1> words{};

    std::uint8_t used(std::uint8_t generation) const noexcept;
    bool has(std::uint16_t tag, std::uint8_t generation) const noexcept;
    void add(std::uint16_t tag, std::uint8_t generation) noexcept;
  };
  using table = std::vector<bucket>;

  std::array<table, generations> tables_;
  std::size_t generation_size_ = 0;
  std::size_t added_ = 0;  // to the youngest generation
  // Buckets start in generation 0, which is none of the live ones.
  std::uint8_t youngest_ = generations;
};

}  // namespace kvd
