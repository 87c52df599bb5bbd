#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/random.hpp"
#include "memory/slab_pool.hpp"
#include "tests/memory/pool_over_buffer.hpp"

using namespace kvd;

namespace {

// Random calls on a pool of two nodes beside a naive record of what it should hold.
class pool_beside_model {
public:
  pool_beside_model(std::uint64_t seed, bool blockwise)
      : random_(seed), pool_(512 * kib, {0, 1}, blockwise, false) {}

  void step() {
    switch (random_.below(8)) {
    case 0: return grow();
    case 1: return learn();
    case 2:
    case 3:
    case 4: return allocate();
    case 5:
    case 6: return release_some();
    default: return exchange();
    }
  }

  void verify() {
    const auto broken = pool_->check();
    INFO(broken);
    REQUIRE(broken.empty());
    REQUIRE(pool_->used_bytes() == used_);
    for (const auto& [owner, at] : live_)
      REQUIRE(pool_->owner_of(at) == owner);
  }

private:
  void grow() {
    const auto node = random_.below(2);
    grown_[node] += random_.below(64 * kib);
    pool_->grow(static_cast<int>(node), grown_[node]);
  }

  void learn() {
    if (classes_.size() == 6) return;
    const auto bound = random_.below(2) == 0 ? 4000 : 150 * kib;
    classes_.push_back(*pool_->learn(1 + random_.below(bound)));
  }

  void allocate() {
    if (classes_.empty()) return;
    const auto of = classes_[random_.below(classes_.size())];
    const auto wanted = 1 + random_.below(12);
    const auto node = static_cast<int>(random_.below(3)) - 1;
    for (const auto at : take(*pool_.pool, of, wanted, next_owner_, node))
      record(at, of);
  }

  void record(slot at, size_class of) {
    const auto bytes = pool_->bytes_of(of);
    const auto* first = pool_->address(at);
    const bool overlaps = std::any_of(live_.begin(), live_.end(), [&](const auto& item) {
      const auto* other = pool_->address(item.second);
      return first < other + pool_->bytes_of(pool_->class_of(item.second)) && other < first + bytes;
    });
    REQUIRE(!overlaps);
    REQUIRE(pool_->class_of(at) == of);
    live_[next_owner_++] = at;
    used_ += bytes;
  }

  void forget(block_index owner) {
    used_ -= pool_->bytes_of(pool_->class_of(live_.at(owner)));
    live_.erase(owner);
  }

  void release_some() {
    std::vector<slot> gone;
    std::vector<block_index> owners;
    for (const auto& [owner, at] : live_) {
      if (random_.below(5) != 0) continue;
      gone.push_back(at);
      owners.push_back(owner);
    }
    for (const auto owner : owners)
      forget(owner);
    pool_->release(gone);
  }

  // Vacates what the pool proposes and expects the slot that it promised by that.
  void exchange() {
    if (classes_.empty()) return;
    all_but may_go;
    for (const auto& [owner, at] : live_) {
      if (random_.below(10) == 0) may_go.pinned.insert(owner);
    }
    std::vector<block_index> victims(2000);
    const auto of = classes_[random_.below(classes_.size())];
    const int node = static_cast<int>(random_.below(2));
    const auto count = pool_->propose_window(of, node, may_go, victims);
    if (count == 0) return;
    // All in one node, the asked one or, when that has no such window, the other.
    const auto there = pool_->node_of(live_.at(victims[0]));
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(!may_go.pinned.contains(victims[i]));
      const auto gone = live_.at(victims[i]);
      REQUIRE(pool_->node_of(gone) == there);
      forget(victims[i]);
      pool_->release({&gone, 1});
    }
    const auto got = take(*pool_.pool, of, 1, next_owner_, there);
    REQUIRE(got.size() == 1);
    REQUIRE(pool_->node_of(got[0]) == there);
    record(got[0], of);
  }

  seeded_random random_;
  pool_over_buffer pool_;
  std::array<std::uint64_t, 2> grown_{};
  std::vector<size_class> classes_;
  block_index next_owner_ = 0;
  std::map<block_index, slot> live_;
  std::uint64_t used_ = 0;
};

}  // namespace

TEST_CASE("random operations keep the invariants and agree with a naive model") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    pool_beside_model both(seed, seed % 2 == 0);
    for (int step = 0; step < 600; ++step) {
      INFO("seed ", seed, " step ", step);
      both.step();
      both.verify();
    }
  }
}

TEST_CASE("four threads allocate, fill, verify and release at once") {
  pool_over_buffer pool(2 * mib, {0, 1});
  const size_class classes[] = {*pool->learn(512), *pool->learn(6000), *pool->learn(80 * kib)};
  std::atomic<int> wrong{0};
  const auto work = [&](block_index mark) {
    seeded_random random(mark);
    std::vector<std::vector<slot>> held;
    for (int step = 0; step < 400; ++step) {
      const auto of = classes[random.below(3)];
      auto got =
          take(*pool.pool, of, 1 + random.below(8), mark * 1000000, static_cast<int>(mark % 2));
      for (const auto at : got) {
        std::fill_n(pool->address(at), 64, static_cast<std::byte>(mark));
        if (pool->class_of(at) != of) ++wrong;
      }
      if (!got.empty()) held.push_back(std::move(got));
      if (held.size() < 6) continue;
      const auto victim = random.below(held.size());
      for (const auto at : held[victim]) {
        const auto* bytes = pool->address(at);
        if (std::count(bytes, bytes + 64, static_cast<std::byte>(mark)) != 64) ++wrong;
        if (pool->owner_of(at) / 1000000 != mark) ++wrong;
      }
      pool->release(held[victim]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
      all_but may_go;
      std::vector<block_index> victims(16);
      if (step % 16 == 0) pool->propose_window(of, 0, may_go, victims);
      if (step % 32 == 0 && !pool->check().empty()) ++wrong;
    }
    for (const auto& slots : held)
      pool->release(slots);
  };
  std::vector<std::thread> threads;
  for (block_index mark = 1; mark <= 4; ++mark)
    threads.emplace_back(work, mark);
  for (auto& thread : threads)
    thread.join();
  CHECK(wrong == 0);
  CHECK(pool->used_bytes() == 0);
  CHECK(pool->check().empty());
  const auto now = pool->snapshot();
  for (const auto& row : now.classes)
    CHECK(row.slabs == 0);
}
