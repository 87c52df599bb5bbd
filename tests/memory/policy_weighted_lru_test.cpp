#include <doctest/doctest.h>

#include <algorithm>
#include <list>

#include "core/random.hpp"
#include "memory/policy_ages.hpp"
#include "memory/policy_lru.hpp"
#include "memory/policy_weighted_lru.hpp"
#include "tests/memory/policy_fixture.hpp"

namespace kvd {

namespace {

// age_order behind the interface, with one weight.
template<std::uint32_t Weight>
class fixed_weight final : public eviction_policy {
public:
  std::string_view name() const noexcept override { return "fixed"; }
  void reserve(std::uint32_t blocks_max, std::uint32_t capacity) override {
    order_.reserve(blocks_max, capacity);
  }
  bool admit(std::uint64_t) noexcept override { return true; }
  void insert(block_index block, std::uint64_t fingerprint) noexcept override {
    order_.insert(block, fingerprint);
  }
  void touch(block_index block, std::uint64_t) noexcept override { order_.touch(block); }
  void remove(block_index block) noexcept override { order_.remove(block); }
  block_index evict(evictable& may_go) noexcept override { return order_.evict(may_go, Weight); }
  std::uint32_t resident() const noexcept override { return order_.size(); }
  std::size_t memory_bytes() const noexcept override { return order_.memory_bytes(); }

private:
  age_order order_;
};

struct age_model {
  struct item {
    std::uint64_t key;
    std::uint64_t used;  // inserts before
  };
  std::size_t capacity;
  std::uint64_t weight;
  std::list<item> once, again;  // oldest first
  ghost_tags ghosts{};
  std::uint64_t inserts = 0;

  age_model(std::size_t blocks, std::uint64_t factor) : capacity(blocks), weight(factor) {
    ghosts.reserve(3 * blocks);
  }
  static bool take(std::list<item>& from, std::uint64_t key) {
    for (auto at = from.begin(); at != from.end(); ++at) {
      if (at->key == key) {
        from.erase(at);
        return true;
      }
    }
    return false;
  }
  void access(std::uint64_t key) {
    if (take(once, key) || take(again, key)) {
      again.push_back({key, inserts});
      return;
    }
    if (once.size() + again.size() == capacity) {
      const auto from_once =
          again.empty() ||
          (!once.empty() && (inserts - once.front().used) * weight >= inserts - again.front().used);
      auto& from = from_once ? once : again;
      ghosts.add(from.front().key);
      from.pop_front();
    }
    ++inserts;
    (ghosts.has(key) ? again : once).push_back({key, inserts});
  }
  bool has(std::uint64_t key) const {
    const auto same = [&](const item& each) { return each.key == key; };
    return std::any_of(once.begin(), once.end(), same) ||
           std::any_of(again.begin(), again.end(), same);
  }
};

std::uint64_t draw(seeded_random& random, std::uint64_t step) {
  return 1 + random.below(1 + random.below(400)) + (random.below(3) == 0 ? step / 20 : 0);
}

template<std::uint32_t Weight>
void compare_with_model(std::uint64_t seed) {
  CAPTURE(seed);
  seeded_random random(seed);
  fixed_weight<Weight> policy;
  policy_cache cache(policy, 100);
  age_model model(100, Weight);
  for (std::uint64_t step = 0; step < 6'000; ++step) {
    const auto key = draw(random, step);
    REQUIRE(cache.has(key) == model.has(key));
    cache.access(key);
    model.access(key);
  }
}

// Hits of `policy` and of LRU on the same accesses.
struct contest {
  weighted_lru_policy weighted;
  lru_policy lru;
  policy_cache weighted_cache;
  policy_cache lru_cache;
  std::size_t weighted_hits = 0;
  std::size_t lru_hits = 0;

  explicit contest(std::uint32_t capacity)
      : weighted_cache(weighted, capacity), lru_cache(lru, capacity) {}
  void access(std::uint64_t key) {
    weighted_hits += weighted_cache.access(key) ? 1 : 0;
    lru_hits += lru_cache.access(key) ? 1 : 0;
  }
};

// A hundred blocks in steady use, while prompts that nobody repeats stream past.
void hot_set_and_scan(contest& both, seeded_random& random, std::uint64_t& fresh, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    both.access(1 + random.below(100));
    for (int block = 0; block < 3; ++block)
      both.access(++fresh);
  }
}

// Every block comes back once, soon, and then never again.
void one_return_each(contest& both, std::uint64_t& fresh, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    both.access(++fresh);
    both.access(fresh - 90);
  }
}

}  // namespace

TEST_CASE("ages order blocks as two naive lists do") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    compare_with_model<1>(seed);
    compare_with_model<4>(seed);
    compare_with_model<16>(seed);
  }
}

TEST_CASE("with weight 1 ages order blocks as LRU does") {
  constexpr std::uint64_t seed = 21;
  CAPTURE(seed);
  seeded_random random(seed);
  fixed_weight<1> ages;
  lru_policy lru;
  policy_cache ages_cache(ages, 300);
  policy_cache lru_cache(lru, 300);
  for (std::uint64_t step = 0; step < 30'000; ++step) {
    const auto key = draw(random, step);
    REQUIRE(ages_cache.access(key) == lru_cache.access(key));
  }
}

TEST_CASE("weighted-lru starts as LRU") {
  CHECK(weighted_lru_policy().weight() == 1);
}

TEST_CASE("weighted-lru keeps what is used again when much is used once") {
  seeded_random random(3);
  contest both(200);
  std::uint64_t fresh = 1'000;
  hot_set_and_scan(both, random, fresh, 10'000);
  CHECK(both.weighted.weight() > 1);
  CHECK(both.weighted_hits > 1.5 * static_cast<double>(both.lru_hits));
}

TEST_CASE("weighted-lru stays LRU where a second use says nothing about a third") {
  contest both(200);
  std::uint64_t fresh = 1'000;
  one_return_each(both, fresh, 20'000);
  CHECK(both.weighted.weight() == 1);
  CHECK(both.weighted_hits == both.lru_hits);
}

TEST_CASE("weighted-lru comes back to LRU when the traffic changes") {
  seeded_random random(4);
  contest both(200);
  std::uint64_t fresh = 1'000;
  hot_set_and_scan(both, random, fresh, 10'000);
  REQUIRE(both.weighted.weight() > 1);
  one_return_each(both, fresh, 20'000);
  const auto weighted_before = both.weighted_hits;
  const auto lru_before = both.lru_hits;
  one_return_each(both, fresh, 20'000);
  CHECK(both.weighted_hits - weighted_before == both.lru_hits - lru_before);
}

TEST_CASE("weighted-lru needs 18 bytes a block for a pool of any size that matters") {
  weighted_lru_policy policy;
  policy.reserve(1'000'000, 1'000'000);
  CHECK(policy.memory_bytes() < 18'000'000);
  weighted_lru_policy small;
  small.reserve(1'000, 1'000);
  CHECK(small.memory_bytes() < 200'000);
}

TEST_CASE("a larger capacity keeps what weighted-lru learnt") {
  seeded_random random(5);
  contest both(200);
  std::uint64_t fresh = 1'000;
  hot_set_and_scan(both, random, fresh, 10'000);
  const auto learnt = both.weighted.weight();
  REQUIRE(learnt > 1);
  both.weighted_cache.grow(5'000);
  CHECK(both.weighted.weight() == learnt);
}

}  // namespace kvd
