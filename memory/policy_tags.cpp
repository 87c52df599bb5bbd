#include "memory/policy_tags.hpp"

#include <algorithm>

namespace kvd {

namespace {

// Of 31; the fullest of two-choice buckets holds three or four more than the average one.
constexpr std::size_t tags_wanted_per_bucket = 27;

struct places {
  std::size_t first;
  std::size_t second;
  std::uint16_t tag;
};

// `bits` >> 32 scaled to [0, count).
std::size_t scaled(std::uint64_t bits, std::size_t count) noexcept {
  return static_cast<std::size_t>(((bits >> 32) * count) >> 32);
}

places places_of(std::uint64_t fingerprint, std::size_t buckets) noexcept {
  const auto first = (fingerprint ^ (fingerprint >> 32)) * 0xD6E8FEB86659FD93ULL;
  const auto second = (first ^ (first >> 31)) * 0x94D049BB133111EBULL;
  const auto tag = static_cast<std::uint16_t>(second >> 8);
  return {scaled(first, buckets), scaled(second, buckets), std::max<std::uint16_t>(1, tag)};
}

}  // namespace

std::uint8_t ghost_tags::bucket::used(std::uint8_t generation) const noexcept {
  const auto state = words[tags_per_bucket];
  return (state >> 8) == generation ? static_cast<std::uint8_t>(state) : std::uint8_t{0};
}

bool ghost_tags::bucket::has(std::uint16_t tag, std::uint8_t generation) const noexcept {
  // All words without a branch, for the vector unit; the last one is no tag.
  unsigned equal = 0;
  for (const auto word : words)
    equal += word == tag ? 1U : 0U;
  equal -= words[tags_per_bucket] == tag ? 1U : 0U;
  return equal != 0 && used(generation) != 0;
}

void ghost_tags::bucket::add(std::uint16_t tag, std::uint8_t generation) noexcept {
  auto count = used(generation);
  if (count == 0) words.fill(0);
  // Full: improbable, and then the last one is lost.
  if (count < tags_per_bucket) ++count;
  words[count - 1U] = tag;
  words[tags_per_bucket] = static_cast<std::uint16_t>(generation << 8 | count);
}

void ghost_tags::reserve(std::size_t capacity) {
  const auto size = (capacity + generations - 1) / generations;
  if (size <= generation_size_) return;
  generation_size_ = size;
  const auto count = (size + tags_wanted_per_bucket - 1) / tags_wanted_per_bucket;
  for (auto& old : tables_) {
    table grown(count);
    // A bucket covers a range of hashes; each new one takes over what covered its start.
    for (std::size_t at = 0; at < count && !old.empty(); ++at)
      grown[at] = old[at * old.size() / count];
    old = std::move(grown);
  }
}

void ghost_tags::add(std::uint64_t fingerprint) noexcept {
  if (generation_size_ == 0) return;
  if (added_ == generation_size_) {
    ++youngest_;
    added_ = 0;
  }
  ++added_;
  auto& buckets = tables_[youngest_ % generations];
  const auto at = places_of(fingerprint, buckets.size());
  auto& first = buckets[at.first];
  auto& second = buckets[at.second];
  (first.used(youngest_) <= second.used(youngest_) ? first : second).add(at.tag, youngest_);
}

bool ghost_tags::has(std::uint64_t fingerprint) const noexcept {
  if (generation_size_ == 0) return false;
  const auto at = places_of(fingerprint, tables_.front().size());
  for (std::size_t back = 0; back < generations; ++back) {
    const auto generation = static_cast<std::uint8_t>(youngest_ - back);
    const auto& buckets = tables_[generation % generations];
    if (buckets[at.first].has(at.tag, generation)) return true;
    if (buckets[at.second].has(at.tag, generation)) return true;
  }
  return false;
}

std::size_t ghost_tags::memory_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const auto& each : tables_)
    bytes += each.capacity() * sizeof(bucket);
  return bytes;
}

}  // namespace kvd
