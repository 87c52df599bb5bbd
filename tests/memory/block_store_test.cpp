#include <cstring>
#include <thread>

#include "tests/memory/store_fixture.hpp"

using namespace kvd;
using kvd::test::hashes;
using kvd::test::simple_layout;
using kvd::test::store_fixture;

TEST_CASE_FIXTURE(store_fixture, "a block can be found as soon as its last part is committed") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 2, 1));
  const hashes two(0, 2);
  CHECK(save_part(in, 0, two) == 2);
  CHECK(hits(in, two) == 0);
  CHECK(metrics.inflight_bytes.value() == 2 * 4096);
  CHECK(save_part(in, 1, two) == 2);
  CHECK(hits(in, two) == 2);
  CHECK(metrics.inflight_bytes.value() == 0);
  CHECK(metrics.resident_bytes.value() == 4 * 4096);
  CHECK(store->check() == "");
}

TEST_CASE_FIXTURE(store_fixture, "a prefix ends at the first block that is missing") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  save(in, hashes(0, 3));
  save(in, hashes(4, 2));
  CHECK(hits(in, hashes(0, 6)) == 3);
  std::vector<block_index> pinned;
  std::vector<std::uint32_t> positions;
  CHECK(store->pin_members(in, hashes(0, 6).list(), pinned, positions) == 5);
  CHECK(positions == std::vector<std::uint32_t>{0, 1, 2, 4, 5});
  store->unpin(pinned);
  CHECK(metrics.pinned_bytes.value() == 0);
}

TEST_CASE_FIXTURE(store_fixture, "the same hash in another namespace, group or layout is a miss") {
  const auto mine = *store->open_scope("a", 0, simple_layout(4096, 1, 1));
  const auto other_namespace = *store->open_scope("b", 0, simple_layout(4096, 1, 1));
  const auto other_group = *store->open_scope("a", 1, simple_layout(4096, 1, 1));
  const auto other_layout = *store->open_scope("a", 0, simple_layout(4096, 1, 2));
  const hashes one(0, 1);
  save(mine, one);
  CHECK(hits(mine, one) == 1);
  CHECK(hits(other_namespace, one) == 0);
  CHECK(hits(other_group, one) == 0);
  CHECK(hits(other_layout, one) == 0);
  CHECK(*store->open_scope("a", 0, simple_layout(4096, 1, 1)) == mine);
}

TEST_CASE_FIXTURE(store_fixture, "a second save of a stored block is told that it is present") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  CHECK(save(in, hashes(0, 2)) == 2);
  CHECK(save(in, hashes(0, 3)) == 1);
  CHECK(counts.present == 2);
  CHECK(metrics.resident_blocks.value() == 3);
}

TEST_CASE_FIXTURE(store_fixture, "a part that is being copied is busy for everybody else") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  const hashes two(0, 2);
  const auto first = claim(in, 0, two);
  CHECK(first.size() == 2);
  CHECK(claim(in, 0, two).empty());
  CHECK(busy == std::vector<std::uint32_t>{0, 1});
  store->abandon(first);
  CHECK(claim(in, 0, two).size() == 2);
}

TEST_CASE_FIXTURE(store_fixture, "an abandoned copy leaves nothing behind") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  store->abandon(claim(in, 0, hashes(0, 5)));
  CHECK(pool->used_bytes() == 0);
  CHECK(metrics.inflight_bytes.value() == 0);
  CHECK(hits(in, hashes(0, 5)) == 0);
  CHECK(store->check() == "");
}

TEST_CASE("a part that comes in pieces is whole when its last cell is there") {
  store_fixture at;
  group_layout layout = simple_layout(8192, 1, 1);
  layout.parts[0].cells = 3;
  const auto in = *at.store->open_scope("ns", 0, layout);
  const hashes one(0, 1);
  const std::uint32_t first[] = {0, 2};
  const std::uint32_t rest[] = {1};
  auto claims = at.claim(in, 0, one);
  REQUIRE(claims.size() == 1);
  CHECK(!claims[0].partial);
  at.store->commit(claims, first);
  CHECK(at.hits(in, one) == 0);
  claims = at.claim(in, 0, one);
  REQUIRE(claims.size() == 1);
  CHECK(claims[0].partial);
  CHECK(at.store->cell_filled(claims[0], 0));
  CHECK(!at.store->cell_filled(claims[0], 1));
  at.store->commit(claims, rest);
  CHECK(at.hits(in, one) == 1);
  CHECK(at.store->check() == "");
}

TEST_CASE_FIXTURE(store_fixture, "a full pool evicts the least recent blocks, leaves first") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  const int fit = static_cast<int>(pool->capacity_bytes() / 4096);
  CHECK(save(in, hashes(0, fit)) == static_cast<std::size_t>(fit));
  CHECK(hits(in, hashes(0, fit)) == static_cast<std::size_t>(fit));
  CHECK(save(in, hashes(100000, 10)) == 10);
  CHECK(hits(in, hashes(0, fit)) == static_cast<std::size_t>(fit) - 10);
  CHECK(store->check() == "");
}

TEST_CASE_FIXTURE(store_fixture, "pinned blocks survive any storm of saves") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  const hashes mine(0, 16);
  save(in, mine);
  std::vector<block_index> pinned;
  REQUIRE(store->pin_prefix(in, mine.list(), pinned) == 16);
  for (std::size_t i = 0; i < 16; ++i) {
    std::memset(const_cast<std::byte*>(store->part_address(pinned[i], 0)), static_cast<int>(i) + 1,
                4096);
  }
  for (int round = 0; round < 20; ++round)
    save(in, hashes(1000 + round * 300, 300));
  CHECK(hits(in, mine) == 16);
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(static_cast<std::size_t>(*store->part_address(pinned[i], 0)) == i + 1);
  }
  CHECK(metrics.pinned_bytes.value() == 16 * 4096);
  store->unpin(pinned);
  CHECK(metrics.pinned_bytes.value() == 0);
  CHECK(store->check() == "");
}

TEST_CASE_FIXTURE(store_fixture, "a save keeps what fits when the rest of the pool is pinned") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  const int fit = static_cast<int>(pool->capacity_bytes() / 4096);
  const hashes pinned_ones(0, fit - 4);
  save(in, pinned_ones);
  std::vector<block_index> pinned;
  store->pin_prefix(in, pinned_ones.list(), pinned);
  CHECK(save(in, hashes(5000, 10)) == 4);
  CHECK(counts.no_room == 6);
  CHECK(hits(in, hashes(5000, 10)) == 4);
  store->unpin(pinned);
  CHECK(store->check() == "");
}

TEST_CASE_FIXTURE(store_fixture, "layouts of other sizes take slabs from each other") {
  const auto small = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  const int fit = static_cast<int>(pool->capacity_bytes() / 4096);
  save(small, hashes(0, fit));
  const auto large = *store->open_scope("ns", 0, simple_layout(65536, 1, 2));
  CHECK(save(large, hashes(0, 6)) == 6);
  CHECK(hits(large, hashes(0, 6)) == 6);
  CHECK(store->check() == "");
  CHECK(save(small, hashes(90000, fit)) > 0);
  CHECK(store->check() == "");
}

TEST_CASE_FIXTURE(store_fixture, "unsealed blocks go when they are too old, fresh ones stay") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 2, 1));
  save_part(in, 0, hashes(0, 3));
  time.advance(std::chrono::seconds(200));
  save_part(in, 0, hashes(10, 2));
  time.advance(std::chrono::seconds(150));
  CHECK(store->drop_unsealed(std::chrono::seconds(300)) == 3);
  CHECK(metrics.inflight_bytes.value() == 2 * 4096);
  CHECK(metrics.inflight_gc_cleaned.value() == 3);
  CHECK(save_part(in, 1, hashes(10, 2)) == 2);
  CHECK(hits(in, hashes(10, 2)) == 2);
  CHECK(store->check() == "");
}

TEST_CASE_FIXTURE(store_fixture,
                  "cleanup hides every block and frees leased ones with their lease") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  save(in, hashes(0, 10));
  std::vector<block_index> pinned;
  store->pin_prefix(in, hashes(0, 4).list(), pinned);
  const auto total = store->drop_resident();
  CHECK(total.evicted_blocks == 10);
  CHECK(total.evicted_bytes == 10 * 4096);
  CHECK(total.reclaimed_bytes == 6 * 4096);
  CHECK(total.still_referenced_blocks == 4);
  CHECK(hits(in, hashes(0, 10)) == 0);
  CHECK(pool->used_bytes() == 4 * 4096);
  store->unpin(pinned);
  CHECK(pool->used_bytes() == 0);
  CHECK(metrics.pinned_bytes.value() == 0);
  CHECK(store->check() == "");
}

TEST_CASE_FIXTURE(store_fixture, "background eviction stops at the low watermark") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  int noticed = 0;
  store->on_pressure([&] { ++noticed; });
  const int fit = static_cast<int>(pool->capacity_bytes() / 4096);
  save(in, hashes(0, fit));
  CHECK(noticed == 1);
  CHECK(store->trim(1000) > 0);
  CHECK(!store->above_low_watermark());
  CHECK(store->trim(1000) == 0);
  CHECK(hits(in, hashes(0, fit)) >= static_cast<std::size_t>(fit) * 96 / 100);
}

TEST_CASE("index and default policy cost at most 128 bytes a block beside its slots") {
  store_fixture at(64 << 20, "");
  const auto in = *at.store->open_scope("ns", 0, simple_layout(512, 1, 1));
  const int fit = static_cast<int>(at.pool->capacity_bytes() / 512);
  for (int first = 0; first < fit; first += 1024)
    at.save(in, hashes(first, 1024));
  const auto blocks = static_cast<std::uint64_t>(at.metrics.resident_blocks.value());
  CHECK(blocks > 100'000);
  CHECK(at.store->index_bytes() <= 128 * blocks);
}

TEST_CASE("many threads save, look up and evict the same few blocks") {
  store_fixture at(1 << 18);
  const auto in = *at.store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      seeded_random random(static_cast<std::uint64_t>(t));
      std::vector<part_claim> claims;
      std::vector<std::uint32_t> busy;
      std::vector<block_index> pinned;
      const std::uint32_t cells[] = {0};
      for (int round = 0; round < 400; ++round) {
        const hashes some(static_cast<int>(random.below(90)), 12);
        const auto positions = test::all_positions(some);
        claims.clear();
        busy.clear();
        at.store->claim({.in = in,
                         .part = 0,
                         .numa_node = -1,
                         .origin = 1,
                         .hashes = some.list(),
                         .positions = positions},
                        claims, busy);
        for (const auto& claim : claims) {
          std::memcpy(claim.address, some.list()[claim.position]->data(), 32);
        }
        if (random.below(8) == 0) {
          at.store->abandon(claims);
        } else {
          at.store->commit(claims, cells);
        }
        pinned.clear();
        const auto count = at.store->pin_prefix(in, some.list(), pinned);
        for (std::size_t i = 0; i < count; ++i) {
          // A pinned block never shows another block's bytes.
          if (std::memcmp(at.store->part_address(pinned[i], 0), some.list()[i]->data(), 32) != 0) {
            std::abort();
          }
        }
        at.store->unpin(pinned);
        if (t == 0 && round % 100 == 99) at.store->drop_resident();
      }
    });
  }
  for (auto& each : threads)
    each.join();
  CHECK(at.store->check() == "");
  CHECK(at.metrics.pinned_bytes.value() == 0);
  CHECK(at.metrics.inflight_bytes.value() == 0);
}

TEST_CASE("blocks that others hold copies of go first, unless they are in use") {
  store_fixture at(64 << 10);
  const auto in = *at.store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  at.save(in, hashes(0, 16));
  CHECK(at.hits(in, hashes(0, 16)) == 16);
  hashes hinted(14, 2);
  hinted.add(99);  // not here
  at.store->hint_reclaimable(in, hinted.list());
  CHECK(at.metrics.reclaimable_blocks.value() == 2);
  std::vector<block_index> pinned;
  at.store->pin_prefix(in, hashes(14, 1).list(), pinned);
  CHECK(at.save(in, hashes(20, 2)) == 2);
  // 15 went by its hint, 14 is in use; then the least recent of the others.
  CHECK(at.hits(in, hashes(15, 1)) == 0);
  CHECK(at.hits(in, hashes(14, 1)) == 1);
  at.store->unpin(pinned);
  CHECK(at.metrics.reclaimable_blocks.value() == 0);
  at.store->hint_reclaimable(in, hashes(14, 1).list());
  at.store->drop_resident();
  CHECK(at.save(in, hashes(30, 16)) == 16);
  CHECK(at.save(in, hashes(50, 1)) == 1);
  CHECK(at.store->check() == "");
}
