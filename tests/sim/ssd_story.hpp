#pragma once
// What outlives the servers of one seed: the disks, and what was promised about them.
//
// Bytes of a block follow from its name, the rank, the layer and the version that its engine wrote,
// word by word, so that a word that is another block's, of elsewhere in the same block, or of two
// versions at once is seen.
//
// Owner: one test, one thread.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "storage/memory_file.hpp"
#include "storage/segment_log.hpp"

namespace kvd::sim {

inline constexpr int namespaces = 2;
inline constexpr int hash_count = 90;   // blocks that engines save at random, in each namespace
inline constexpr int probe_count = 10;  // behind those: one a life, to see that writing works again
inline constexpr int name_count = namespaces * (hash_count + probe_count);
inline constexpr int layers = 2;
inline constexpr std::uint32_t ranks = 2;
inline constexpr std::uint64_t segment = 1024;  // bytes of K, and of V, of one layer of a block
inline constexpr std::uint64_t part_bytes = 2 * segment * layers;
inline constexpr std::uint64_t log_segment = 256 << 10;

constexpr int name_of(int name_space, int hash) {
  return name_space * (hash_count + probe_count) + hash;
}

// What a segment of the log can hold at most.
constexpr std::uint64_t records_a_segment(std::uint32_t alignment) {
  return log_segment / (alignment + ranks * part_bytes);
}

enum class ending : std::uint8_t {
  stop,        // drained and closed
  sick_stop,   // closed while the disk fails
  kill,        // at once; the kernel goes on with what it had
  power_loss,  // at once; what was not synced is there or not, sector by sector
};

// One file of the tier, and what it owes.
struct story_disk {
  memory_file::image bytes;
  std::vector<int> promised;   // names, by the time they were told stored
  std::uint64_t lost_max = 0;  // of the promised, among the last `late`
  std::size_t late = 0;
};

struct ssd_story {
  explicit ssd_story(std::uint64_t seed);

  seeded_random random;
  durability level;
  std::uint32_t alignment;
  // Bits flip and reads fail at any time, starts included: nothing is promised but that no wrong
  // byte is loaded.
  bool rotten;
  std::vector<story_disk> disks;
  std::array<std::uint32_t, name_count> versions{};  // of the bytes that were saved last, from 1
  int lives = 0;

  // Identities of a namespace's blocks, once its layout is known.
  void learn(int name_space, const layout_fingerprint& layout);
  bool known(int name) const { return !hashes[name].empty(); }
  record_identity identity(int name) const;
  std::array<std::string, name_count> hashes;
  std::array<record_key, name_count> keys;
  std::array<layout_fingerprint, namespaces> layouts;
};

// What happened over all seeds: a story in which nothing happens proves nothing.
struct tally {
  std::uint64_t blocks_compared = 0;
  std::uint64_t blocks_fetched = 0;
  std::uint64_t loadings = 0;
  std::uint64_t switched_off = 0;
  std::uint64_t came_back = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t reclaimed = 0;
  std::uint64_t promises_kept = 0;
  std::uint64_t fetches_idle = 0;
  std::uint64_t unsound = 0;  // disks that fsck complains of, after an end without any fault
  std::array<std::uint64_t, 4> endings{};
};

std::string space_name(int name_space);

// Words of K (0) or V (1) of a layer.
void write_words(std::span<std::byte> to, int name, std::uint32_t rank, int layer, int kv,
                 std::uint32_t version);
// The version that all words are of; 0 when there is none.
std::uint32_t version_of(std::span<const std::byte> from, int name, std::uint32_t rank, int layer,
                         int kv);

}  // namespace kvd::sim
