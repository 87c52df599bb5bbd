#pragma once
// Fingerprints of blocks that are gone, in two queues by age: the exact memory that ARC and S3-FIFO
// are defined with. An open-addressing table finds one in O(1); entries live in one array.
//
// 24 bytes a ghost: 16 for the entry, 8 for the table at a load of at most one half.
// Owner: an eviction policy, single-threaded. Only reserve allocates.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvd {

using ghost_index = std::uint32_t;
inline constexpr ghost_index no_ghost = ~ghost_index{0};

enum class ghost_queue : std::uint8_t { first = 0, second = 1 };

class ghost_table {
public:
  // Room for `capacity` ghosts in both queues together; keeps those that are in. Never shrinks.
  void reserve(std::uint32_t capacity);
  // no_ghost when `fingerprint` is in neither queue.
  ghost_index find(std::uint64_t fingerprint) const noexcept;
  ghost_queue queue_of(ghost_index ghost) const noexcept;
  std::uint32_t size(ghost_queue queue) const noexcept { return ends_[at(queue)].size; }
  // The youngest of `queue`. A full table first drops the oldest of the longer queue.
  // REQUIRES: `fingerprint` is in neither queue.
  // no_ghost when there is no room at all.
  ghost_index push(ghost_queue queue, std::uint64_t fingerprint) noexcept;
  std::uint64_t fingerprint(ghost_index ghost) const noexcept {
    return entries_[ghost].fingerprint;
  }
  void erase(ghost_index ghost) noexcept;
  // REQUIRES: the queue is not empty.
  void drop_oldest(ghost_queue queue) noexcept;
  std::size_t memory_bytes() const noexcept;

private:
  // `newer` carries the queue in its top bit, so that an entry stays 16 bytes; a free entry chains
  // to the next free one by `older`.
  struct entry {
    std::uint64_t fingerprint = 0;
    std::uint32_t newer = 0;
    ghost_index older = no_ghost;
  };
  struct queue_ends {
    ghost_index newest = no_ghost;
    ghost_index oldest = no_ghost;
    std::uint32_t size = 0;
  };

  static std::size_t at(ghost_queue queue) noexcept { return static_cast<std::size_t>(queue); }
  ghost_index newer_of(ghost_index ghost) const noexcept;
  void set_newer(ghost_index ghost, ghost_index newer) noexcept;
  std::size_t home(std::uint64_t fingerprint) const noexcept;
  void put(ghost_index ghost) noexcept;
  void take(ghost_index ghost) noexcept;
  void unlink(ghost_index ghost) noexcept;

  std::vector<entry> entries_;
  std::vector<ghost_index> table_;  // a power of two; no_ghost where empty
  std::array<queue_ends, 2> ends_;
  ghost_index free_ = no_ghost;
};

}  // namespace kvd
