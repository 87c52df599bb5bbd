#include "tests/sim/ssd_story.hpp"

#include <cstring>

#include "tests/memory/store_fixture.hpp"

namespace kvd::sim {

namespace {

std::uint64_t word(int name, std::uint32_t rank, int layer, int kv, std::size_t index) {
  auto value = static_cast<std::uint64_t>(name) * ranks + rank;
  value = (value * layers + static_cast<std::uint64_t>(layer)) * 2 + static_cast<std::uint64_t>(kv);
  value = (value * segment + index + 1) * 0x9E3779B97F4A7C15;
  return value ^ (value >> 29U);
}

}  // namespace

ssd_story::ssd_story(std::uint64_t seed) : random(seed) {
  constexpr durability levels[] = {durability::process, durability::segment, durability::write};
  level = levels[random.below(3)];
  alignment = random.below(4) == 0 ? 4096 : 512;
  rotten = random.below(4) == 0;
  disks.resize(1 + random.below(2));
  for (auto& disk : disks)
    disk.bytes.resize(log_segment * (4 + random.below(2)));
}

std::string space_name(int name_space) {
  return "model-" + std::to_string(name_space);
}

void ssd_story::learn(int name_space, const layout_fingerprint& layout) {
  const auto first = name_of(name_space, 0);
  if (known(first)) return;
  layouts[name_space] = layout;
  const test::hashes made(0, hash_count + probe_count);
  for (int i = 0; i < hash_count + probe_count; ++i) {
    hashes[first + i] = *made.list()[i];
    keys[first + i] = key_of(identity(first + i));
  }
}

record_identity ssd_story::identity(int name) const {
  static const std::string spaces[] = {space_name(0), space_name(1)};
  static_assert(namespaces == 2);
  const int space = name / (hash_count + probe_count);
  return {spaces[space], 0, layouts[space], hashes[name]};
}

void write_words(std::span<std::byte> to, int name, std::uint32_t rank, int layer, int kv,
                 std::uint32_t version) {
  for (std::size_t i = 0; i < to.size() / sizeof(std::uint64_t); ++i) {
    const auto value = word(name, rank, layer, kv, i) + version;
    std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
  }
}

std::uint32_t version_of(std::span<const std::byte> from, int name, std::uint32_t rank, int layer,
                         int kv) {
  std::uint64_t version = 0;
  for (std::size_t i = 0; i < from.size() / sizeof(std::uint64_t); ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    const auto found = value - word(name, rank, layer, kv, i);
    if (i > 0 && found != version) return 0;
    version = found;
  }
  return version < 0x100000000 ? static_cast<std::uint32_t>(version) : 0;
}

}  // namespace kvd::sim
