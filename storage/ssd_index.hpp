#pragma once
// Where each stored block lies on the file: 128 bits of its identity to a place, 32 bytes a slot.
//
// Open addressing with linear probing in 64 shards, a mutex each; deleting shifts back what
// follows, so there are no tombstones and the table never needs a rebuild of its own. A shard
// doubles when three quarters of it are taken, and only then allocates.
//
// Any thread may call anything.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace kvd {

struct record_key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const record_key&, const record_key&) = default;
};

// Units are 512 bytes.
struct record_place {
  std::uint32_t segment = 0;
  std::uint32_t offset = 0;         // of the header, from the segment's start
  std::uint32_t payload_units = 0;  // at least 1
  std::uint32_t record_units = 0;   // header, payload and padding
  friend bool operator==(const record_place&, const record_place&) = default;
};

class ssd_index {
public:
  // `seed` keeps clients, who choose the keys, from choosing the slots.
  explicit ssd_index(std::uint64_t seed = 0) noexcept : seed_(seed) {}

  bool contains(const record_key& key) const noexcept { return find(key).has_value(); }
  std::optional<record_place> find(const record_key& key) const noexcept;
  // Takes the place of what is there under the key. REQUIRES: payload_units > 0.
  void insert(const record_key& key, const record_place& place) noexcept;
  // Removes the key if it still lies there; says whether it did.
  bool erase_if(const record_key& key, std::uint32_t segment, std::uint32_t offset) noexcept;

  std::uint64_t size() const noexcept { return records_.load(std::memory_order_relaxed); }
  std::uint64_t record_units() const noexcept { return units_.load(std::memory_order_relaxed); }
  std::uint64_t index_bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

private:
  static constexpr std::size_t shard_count = 64;
  static constexpr std::size_t first_slots = 16;
  struct slot {
    record_key key;
    record_place place;  // payload_units 0: empty
  };
  static_assert(sizeof(slot) == 32);
  struct shard {
    mutable std::mutex mutex;
    std::vector<slot> slots;  // a power of two, or none
    std::size_t taken = 0;
  };

  std::uint64_t spread(const record_key& key) const noexcept;
  static std::size_t home(std::uint64_t spread, std::size_t slots) noexcept {
    return (spread / shard_count) & (slots - 1);
  }
  // The slot of the key, or the empty one that ends its search. REQUIRES: there are slots.
  static std::size_t seek(const shard& in, std::uint64_t spread, const record_key& key) noexcept;
  void grow(shard& in) noexcept;

  std::uint64_t seed_;
  std::array<shard, shard_count> shards_;
  std::atomic<std::uint64_t> records_{0};
  std::atomic<std::uint64_t> units_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace kvd
