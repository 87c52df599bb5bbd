// What every eviction policy promises.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <set>

#include "core/random.hpp"
#include "memory/eviction_policy.hpp"
#include "tests/memory/policy_fixture.hpp"

namespace kvd {

namespace {

constexpr std::array<const char*, 5> every_policy{"weighted-lru", "lru", "arc", "s3fifo",
                                                  "tinylfu"};

std::unique_ptr<eviction_policy> make(const char* name) {
  auto policy = make_eviction_policy(name);
  REQUIRE(policy.has_value());
  CHECK((*policy)->name() == name);
  return std::move(*policy);
}

}  // namespace

TEST_CASE("an unknown policy is refused with the names of the known ones") {
  const auto policy = make_eviction_policy("clock");
  REQUIRE_FALSE(policy.has_value());
  CHECK(policy.error().code == errc::invalid_argument);
  CHECK(policy.error().detail.find("\"clock\"") != std::string::npos);
  for (const auto* name : every_policy)
    CHECK(policy.error().detail.find(name) != std::string::npos);
}

TEST_CASE("no name means the default policy") {
  CHECK((*make_eviction_policy(""))->name() == "weighted-lru");
}

TEST_CASE("every resident block is evicted once and only once") {
  for (const auto* name : every_policy) {
    CAPTURE(name);
    const auto policy = make(name);
    policy_cache cache(*policy, 50);
    for (std::uint64_t key = 1; key <= 50; ++key)
      cache.insert(key);
    for (std::uint64_t key = 1; key <= 50; key += 3)
      cache.touch(key);
    std::set<std::uint64_t> gone;
    while (const auto key = cache.evict())
      CHECK(gone.insert(key).second);
    CHECK(gone.size() == 50);
    CHECK(policy->resident() == 0);
  }
}

TEST_CASE("random use never loses count of the residents") {
  constexpr std::uint64_t seed = 7;
  for (const auto* name : every_policy) {
    CAPTURE(name);
    CAPTURE(seed);
    seeded_random random(seed);
    const auto policy = make(name);
    policy_cache cache(*policy, 16);
    for (int step = 0; step < 20'000; ++step) {
      const auto key = 1 + random.below(1 + random.below(80));
      if (random.below(20) == 0) {
        if (cache.has(key)) cache.remove(key);
      } else if (random.below(30) == 0) {
        cache.evict();
      } else {
        cache.access(key);
      }
      REQUIRE(policy->resident() == cache.size());
    }
  }
}

TEST_CASE("a pinned block stays while another may go") {
  for (const auto* name : every_policy) {
    CAPTURE(name);
    const auto policy = make(name);
    policy_cache cache(*policy, 40);
    for (std::uint64_t key = 1; key <= 40; ++key) {
      cache.insert(key);
      if (key % 2 == 0) cache.touch(key);
      if (key != 23) cache.pinned.insert(key);
    }
    CHECK(cache.evict() == 23);
    CHECK(cache.evict() == 0);
    CHECK(policy->resident() == 39);
    cache.pinned.clear();
    for (int left = 39; left > 0; --left)
      CHECK(cache.evict() != 0);
  }
}

TEST_CASE("when all blocks are pinned an eviction asks each one once") {
  for (const auto* name : every_policy) {
    CAPTURE(name);
    const auto policy = make(name);
    policy_cache cache(*policy, 100);
    for (std::uint64_t key = 1; key <= 100; ++key) {
      cache.insert(key);
      if (key % 3 == 0) cache.touch(key);
      cache.pinned.insert(key);
    }
    CHECK(cache.evict() == 0);
    // S3-FIFO goes round its main queue as often as a block can be passed for its hits.
    CHECK(cache.asked <= 400);
  }
}

TEST_CASE("a long run of pinned blocks is walked once and not by every eviction") {
  for (const auto* name : every_policy) {
    CAPTURE(name);
    const auto policy = make(name);
    policy_cache cache(*policy, 2'000);
    for (std::uint64_t key = 1; key <= 2'000; ++key) {
      cache.insert(key);
      if (key <= 1'000) cache.pinned.insert(key);
    }
    CHECK(cache.evict() != 0);
    cache.asked = 0;
    for (int round = 0; round < 500; ++round)
      CHECK(cache.evict() != 0);
    CHECK(cache.asked <= 1'600);
  }
}

TEST_CASE("a removed block can come back") {
  for (const auto* name : every_policy) {
    CAPTURE(name);
    const auto policy = make(name);
    policy_cache cache(*policy, 4);
    for (std::uint64_t key = 1; key <= 4; ++key)
      cache.insert(key);
    cache.remove(2);
    CHECK(policy->resident() == 3);
    cache.insert(2);
    cache.remove(1);
    cache.insert(1);
    std::set<std::uint64_t> gone;
    while (const auto key = cache.evict())
      gone.insert(key);
    CHECK(gone == std::set<std::uint64_t>{1, 2, 3, 4});
  }
}

TEST_CASE("reserve may be called again, and the residents stay") {
  for (const auto* name : every_policy) {
    CAPTURE(name);
    const auto policy = make(name);
    policy_cache cache(*policy, 8);
    for (std::uint64_t key = 1; key <= 100; ++key)
      cache.access(key);
    const auto bytes = policy->memory_bytes();
    cache.grow(64);
    CHECK(policy->memory_bytes() > bytes);
    CHECK(policy->resident() == cache.size());
    std::set<std::uint64_t> before;
    for (std::uint64_t key = 1; key <= 100; ++key) {
      if (cache.has(key)) before.insert(key);
    }
    for (std::uint64_t key = 201; key <= 250; ++key)
      cache.access(key);
    for (const auto key : before)
      CHECK(cache.has(key));
    std::size_t gone = 0;
    while (cache.evict() != 0)
      ++gone;
    CHECK(gone == before.size() + 50);
  }
}

TEST_CASE("an empty policy has nothing to evict") {
  for (const auto* name : every_policy) {
    const auto policy = make(name);
    policy_cache cache(*policy, 8);
    CHECK(cache.evict() == 0);
    CHECK(cache.asked == 0);
  }
}

}  // namespace kvd
