// Each policy against a naive model of its paper, on random sequences.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <map>

#include "core/random.hpp"
#include "memory/policy_arc.hpp"
#include "memory/policy_lru.hpp"
#include "memory/policy_s3fifo.hpp"
#include "tests/memory/policy_fixture.hpp"

namespace kvd {

namespace {

using key_list = std::list<std::uint64_t>;  // oldest first

bool contains(const key_list& list, std::uint64_t key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

struct lru_model {
  std::size_t capacity;
  key_list order{};

  bool has(std::uint64_t key) const { return contains(order, key); }
  void access(std::uint64_t key) {
    if (has(key)) {
      order.remove(key);
    } else if (order.size() == capacity) {
      order.pop_front();
    }
    order.push_back(key);
  }
};

struct arc_model {
  std::size_t capacity;
  double target = 0;
  key_list once{}, again{}, once_ghosts{}, again_ghosts{};

  bool has(std::uint64_t key) const { return contains(once, key) || contains(again, key); }
  static void move_oldest(key_list& from, key_list& to) {
    to.push_back(from.front());
    from.pop_front();
  }
  void replace(bool for_again_ghost) {
    const auto size = static_cast<double>(once.size());
    const auto tie = for_again_ghost && once.size() == static_cast<std::size_t>(target);
    if (!once.empty() && (size > target || tie || again.empty())) {
      move_oldest(once, once_ghosts);
    } else {
      move_oldest(again, again_ghosts);
    }
  }
  bool full() const { return once.size() + again.size() >= capacity; }
  static double ratio(const key_list& over, const key_list& under) {
    const auto divisor = std::max<std::size_t>(1, under.size());
    return std::max(1.0, static_cast<double>(over.size()) / static_cast<double>(divisor));
  }
  void access_unknown(std::uint64_t key) {
    const auto known_once = once.size() + once_ghosts.size();
    if (known_once >= capacity && once.size() == capacity) {
      once.pop_front();
    } else if (known_once >= capacity) {
      once_ghosts.pop_front();
      if (full()) replace(false);
    } else {
      const auto known = known_once + again.size() + again_ghosts.size();
      if (known >= 2 * capacity && !again_ghosts.empty()) again_ghosts.pop_front();
      if (full()) replace(false);
    }
    once.push_back(key);
  }
  void access(std::uint64_t key) {
    if (has(key)) {
      once.remove(key);
      again.remove(key);
      again.push_back(key);
    } else if (contains(once_ghosts, key)) {
      target = std::min(static_cast<double>(capacity), target + ratio(again_ghosts, once_ghosts));
      if (full()) replace(false);
      once_ghosts.remove(key);
      again.push_back(key);
    } else if (contains(again_ghosts, key)) {
      target = std::max(0.0, target - ratio(once_ghosts, again_ghosts));
      if (full()) replace(true);
      again_ghosts.remove(key);
      again.push_back(key);
    } else {
      access_unknown(key);
    }
  }
};

struct s3fifo_model {
  std::size_t capacity;
  std::size_t small_max = std::max<std::size_t>(1, capacity / 10);
  std::size_t main_max = capacity - small_max;
  std::deque<std::uint64_t> small{}, main{}, ghosts{};
  std::map<std::uint64_t, int> hits{};

  bool has(std::uint64_t key) const { return hits.count(key) != 0; }
  static std::uint64_t pop(std::deque<std::uint64_t>& queue) {
    const auto key = queue.front();
    queue.pop_front();
    return key;
  }
  void evict_main() {
    for (;;) {
      const auto key = pop(main);
      if (hits[key] == 0) {
        hits.erase(key);
        return;
      }
      --hits[key];
      main.push_back(key);
    }
  }
  void evict_small() {
    while (!small.empty()) {
      const auto key = pop(small);
      if (hits[key] < 2 || main_max == 0) {
        hits.erase(key);
        ghosts.push_back(key);
        if (ghosts.size() > std::max<std::size_t>(1, main_max)) ghosts.pop_front();
        return;
      }
      hits[key] = 0;
      main.push_back(key);
      if (main.size() > main_max) return evict_main();
    }
    if (!main.empty()) evict_main();
  }
  void access(std::uint64_t key) {
    if (has(key)) {
      hits[key] = std::min(3, hits[key] + 1);
      return;
    }
    if (hits.size() == capacity) {
      const auto from_small = small.size() > small_max || main.empty() ||
                              (small.size() >= small_max && main.size() <= main_max);
      from_small ? evict_small() : evict_main();
    }
    const auto ghost = std::find(ghosts.begin(), ghosts.end(), key);
    if (ghost != ghosts.end()) {
      ghosts.erase(ghost);
      main.push_back(key);
    } else {
      small.push_back(key);
    }
    hits[key] = 0;
  }
};

// Zipf-like keys over a window that moves, so that ghosts, promotions and scans all happen.
std::uint64_t draw(seeded_random& random, std::uint64_t step, std::uint64_t spread) {
  const auto key = random.below(1 + random.below(spread));
  return 1 + key + (random.below(3) == 0 ? step / 50 : 0);
}

template<class Policy, class Model>
void compare(std::uint32_t capacity) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(capacity);
    CAPTURE(seed);
    seeded_random random(seed);
    Policy policy;
    policy_cache cache(policy, capacity);
    Model model{capacity};
    for (std::uint64_t step = 0; step < 4'000; ++step) {
      CAPTURE(step);
      const auto key = draw(random, step, 4 * capacity + 3);
      REQUIRE(cache.has(key) == model.has(key));
      cache.access(key);
      model.access(key);
    }
  }
}

}  // namespace

TEST_CASE("lru keeps what a naive LRU keeps") {
  for (const auto capacity : {1U, 2U, 10U, 64U})
    compare<lru_policy, lru_model>(capacity);
}

TEST_CASE("arc keeps what a naive ARC keeps") {
  for (const auto capacity : {1U, 2U, 10U, 64U})
    compare<arc_policy, arc_model>(capacity);
}

TEST_CASE("s3fifo keeps what a naive S3-FIFO keeps") {
  for (const auto capacity : {1U, 2U, 10U, 64U})
    compare<s3fifo_policy, s3fifo_model>(capacity);
}

}  // namespace kvd
