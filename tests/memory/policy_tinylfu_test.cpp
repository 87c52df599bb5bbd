#include <doctest/doctest.h>

#include "memory/policy_sketch.hpp"
#include "memory/policy_tinylfu.hpp"
#include "tests/memory/policy_fixture.hpp"

namespace kvd {

TEST_CASE("tinylfu refuses a block that was seen less often than the one that would go") {
  tinylfu_policy policy;
  policy_cache cache(policy, 4);
  for (std::uint64_t key = 1; key <= 4; ++key) {
    cache.access(key);
    cache.access(key);
  }
  CHECK_FALSE(policy.admit(9));
}

TEST_CASE("tinylfu counts misses, so a block that keeps being asked for gets in") {
  tinylfu_policy policy;
  policy_cache cache(policy, 4);
  for (std::uint64_t key = 1; key <= 4; ++key) {
    cache.access(key);
    cache.access(key);
  }
  CHECK_FALSE(policy.admit(9));
  CHECK(policy.admit(9));  // seen as often as the oldest resident now
  CHECK_FALSE(cache.access(9));
  CHECK(cache.has(9));
  CHECK_FALSE(cache.has(1));
}

TEST_CASE("tinylfu counts an admitted block once") {
  tinylfu_policy policy;
  policy_cache cache(policy, 1);
  cache.access(1);  // one use
  cache.access(2);  // admitted at a tie: one use
  CHECK(cache.has(2));
  cache.access(2);
  CHECK_FALSE(policy.admit(3));  // one use against two
  CHECK(policy.admit(3));        // two against two: block 2 was not counted thrice
}

TEST_CASE("a sketch never counts too little before it halves") {
  use_sketch uses;
  uses.reserve(1'000);
  for (std::uint64_t key = 0; key < 500; ++key) {
    for (std::uint64_t times = 0; times <= key % 10; ++times)
      uses.add(key);
  }
  for (std::uint64_t key = 0; key < 500; ++key)
    CHECK(uses.estimate(key) >= key % 10 + 1);
}

TEST_CASE("a sketch stops at 15 and fades") {
  use_sketch uses;
  uses.reserve(8);
  for (int times = 0; times < 40; ++times)
    uses.add(77);
  CHECK(uses.estimate(77) == 15);
  for (std::uint64_t other = 0; other < 80; ++other)
    uses.add(1'000 + other % 7);
  CHECK(uses.estimate(77) < 15);
}

}  // namespace kvd
