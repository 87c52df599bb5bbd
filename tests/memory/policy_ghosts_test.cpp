#include <doctest/doctest.h>

#include <list>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "memory/policy_ghosts.hpp"
#include "memory/policy_tags.hpp"

namespace kvd {

TEST_CASE("a ghost table keeps what two naive queues keep") {
  constexpr std::uint64_t seed = 11;
  CAPTURE(seed);
  seeded_random random(seed);
  ghost_table table;
  std::list<std::pair<std::uint64_t, ghost_queue>> model;  // oldest first
  std::uint32_t capacity = 20;
  table.reserve(capacity);
  const auto size = [&](ghost_queue queue) {
    std::uint32_t count = 0;
    for (const auto& each : model)
      count += each.second == queue ? 1 : 0;
    return count;
  };
  const auto drop_oldest = [&](ghost_queue queue) {
    for (auto at = model.begin(); at != model.end(); ++at) {
      if (at->second == queue) return (void)model.erase(at);
    }
  };
  for (int step = 0; step < 20'000; ++step) {
    if (step == 10'000) table.reserve(capacity = 50);
    const auto key = random.below(100);
    const auto queue = random.below(2) == 0 ? ghost_queue::first : ghost_queue::second;
    auto known = model.begin();
    while (known != model.end() && known->first != key)
      ++known;
    const auto found = table.find(key);
    REQUIRE((found != no_ghost) == (known != model.end()));
    if (found != no_ghost) {
      REQUIRE(table.queue_of(found) == known->second);
      REQUIRE(table.fingerprint(found) == key);
      table.erase(found);
      model.erase(known);
    } else if (random.below(8) == 0) {
      if (size(queue) > 0) table.drop_oldest(queue);
      drop_oldest(queue);
    } else {
      if (model.size() == capacity) {
        const auto first = size(ghost_queue::first) >= size(ghost_queue::second);
        drop_oldest(first ? ghost_queue::first : ghost_queue::second);
      }
      table.push(queue, key);
      model.emplace_back(key, queue);
    }
    REQUIRE(table.size(ghost_queue::first) == size(ghost_queue::first));
    REQUIRE(table.size(ghost_queue::second) == size(ghost_queue::second));
  }
}

TEST_CASE("ghost tags remember everything recent and nothing old") {
  constexpr std::uint64_t seed = 5;
  constexpr std::size_t capacity = 40'000;
  CAPTURE(seed);
  seeded_random random(seed);
  ghost_tags tags;
  tags.reserve(capacity);
  std::vector<std::uint64_t> added;
  for (std::size_t at = 0; at < 5 * capacity; ++at) {
    added.push_back(random.next());
    tags.add(added.back());
  }
  const auto count = [&](std::size_t from, std::size_t to) {
    std::size_t known = 0;
    for (auto back = from; back < to; ++back)
      known += tags.has(added[added.size() - 1 - back]);
    return known;
  };
  CHECK(count(0, capacity * 3 / 4) == capacity * 3 / 4);
  // By chance only, at 0.3 % each.
  CHECK(count(capacity, 2 * capacity) < capacity / 100);
  std::size_t strangers = 0;
  for (std::size_t at = 0; at < capacity; ++at)
    strangers += tags.has(random.next());
  CHECK(strangers < capacity / 100);
}

TEST_CASE("ghost tags that grow keep most of what they remember") {
  seeded_random random(6);
  ghost_tags tags;
  tags.reserve(3'000);
  std::vector<std::uint64_t> added;
  for (std::size_t at = 0; at < 2'000; ++at) {
    added.push_back(random.next());
    tags.add(added.back());
  }
  tags.reserve(7'000);
  std::size_t known = 0;
  for (const auto each : added)
    known += tags.has(each);
  CHECK(known > 1'000);
}

TEST_CASE("ghost tags without room remember nothing") {
  ghost_tags tags;
  tags.add(1);
  CHECK_FALSE(tags.has(1));
  CHECK(tags.memory_bytes() == 0);
}

}  // namespace kvd
