#include <algorithm>
#include <cstring>

#include <doctest/doctest.h>

#include "core/random.hpp"
#include "transport/device/copy_job.hpp"

using namespace kvd;

namespace {

void copy_naively(const std::vector<copy_range>& ranges) {
  for (const auto& range : ranges) {
    std::memcpy(range.to, range.from, range.bytes);
  }
}

}  // namespace

TEST_CASE("a plan puts the same bytes in the same places as the list it was made from") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    seeded_random random(seed);
    std::vector<std::byte> from(16 << 10);
    random.fill(from);
    std::vector<std::byte> naive(from.size());
    std::vector<std::byte> planned(from.size());
    // Disjoint destinations in random order and of random length, often contiguous on both sides.
    const auto unit = 1 + random.below(200);
    const auto units = from.size() / unit;
    std::vector<copy_range> ranges;
    for (std::uint64_t at = 0; at < units;) {
      const auto count = std::min(random.below(4), units - at);  // 0: an empty range
      const auto source = random.below(3) == 0 ? random.below(units - count + 1) : at;
      ranges.push_back({naive.data() + at * unit, from.data() + source * unit, count * unit});
      at += std::max<std::uint64_t>(count, 1);
    }
    for (std::size_t i = ranges.size(); i > 1; --i) {
      std::swap(ranges[i - 1], ranges[random.below(i)]);
    }
    copy_job job;
    for (const auto& range : ranges) {
      job.ranges.push_back({planned.data() + (range.to - naive.data()), range.from, range.bytes});
    }
    plan_copies(job);
    copy_naively(ranges);
    copy_naively(job.ranges);
    CHECK(planned == naive);
    CHECK(std::is_sorted(job.ranges.begin(), job.ranges.end(),
                         [](const auto& a, const auto& b) { return a.from < b.from; }));
    CHECK(std::none_of(job.ranges.begin(), job.ranges.end(),
                       [](const auto& range) { return range.bytes == 0; }));
  }
}

TEST_CASE("neighbours on both sides become one range whatever their order") {
  std::byte to[64];
  std::byte from[64];
  copy_job job;
  job.ranges = {
      {to + 16, from + 16, 16}, {to + 48, from + 48, 16}, {to, from, 16}, {to + 32, from + 32, 16}};
  plan_copies(job);
  REQUIRE(job.ranges.size() == 1);
  CHECK(job.ranges[0].to == to);
  CHECK(job.ranges[0].from == from);
  CHECK(job.ranges[0].bytes == 64);
}

TEST_CASE("neighbours on one side only stay apart") {
  std::byte to[64];
  std::byte from[64];
  copy_job job;
  job.ranges = {{to, from, 16}, {to + 32, from + 16, 16}};
  plan_copies(job);
  CHECK(job.ranges.size() == 2);
}

TEST_CASE("a plan of empty ranges is empty") {
  std::byte byte{};
  copy_job job;
  job.ranges = {{&byte, &byte, 0}, {&byte, &byte, 0}};
  plan_copies(job);
  CHECK(job.ranges.empty());
}
