#include "memory/residency_feed.hpp"

#include <set>
#include <thread>

#include "tests/memory/store_fixture.hpp"

using namespace kvd;
using kvd::test::hashes;
using kvd::test::simple_layout;
using kvd::test::store_fixture;

namespace {

struct feed_fixture : store_fixture {
  int wakes = 0;
  residency_feed feed{64, [this] { ++wakes; }};
  std::vector<residency_event> events;

  feed_fixture() { store->tell(feed); }
  bool take(std::size_t most = 1000) {
    events.clear();
    return feed.take(events, most);
  }
};

}  // namespace

TEST_CASE_FIXTURE(feed_fixture, "what is sealed and what is evicted is told in order") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 2, 1));
  save_part(in, 0, hashes(0, 2));
  CHECK(feed.empty());
  save_part(in, 1, hashes(0, 2));
  CHECK(wakes == 1);
  store->drop_resident();
  CHECK(wakes == 1);
  CHECK_FALSE(take());
  REQUIRE(events.size() == 4);
  const int order[] = {1, 0, 0, 1};  // leaves are sealed first
  for (int i = 0; i < 4; ++i) {
    CHECK(events[i].resident == (i < 2));
    CHECK(events[i].in == in);
    CHECK(events[i].hash() == *hashes(order[i], 1).list()[0]);
  }
  CHECK(feed.empty());
  save(in, hashes(7, 1));
  CHECK(wakes == 2);
}

TEST_CASE_FIXTURE(feed_fixture, "what pressure evicts is told too") {
  const auto in = *store->open_scope("ns", 0, simple_layout(64 << 10, 1, 1));
  std::set<std::string> told;
  for (int i = 0; i < 100; ++i) {
    save(in, hashes(i, 1));
    CHECK_FALSE(take());
    for (const auto& event : events) {
      if (event.resident) {
        CHECK(told.insert(std::string(event.hash())).second);
      } else {
        CHECK(told.erase(std::string(event.hash())) == 1);
      }
    }
  }
  std::set<std::string> found;
  CHECK(store->for_each_sealed(0, 1 << 20, [&](scope_id of, std::string_view hash) {
    CHECK(of == in);
    found.insert(std::string(hash));
  }) == 0);
  CHECK(found == told);
  CHECK(found.size() < 20);
}

TEST_CASE_FIXTURE(feed_fixture, "a full feed loses all that it holds and says so once") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  save(in, hashes(0, 65));
  // The 64 events that fit say nothing about blocks that ended in the 65th.
  CHECK_FALSE(feed.empty());
  CHECK(take());
  CHECK(events.empty());
  CHECK(feed.empty());
  save(in, hashes(100, 1));
  CHECK(wakes == 2);
  CHECK_FALSE(take());
  CHECK(events.size() == 1);
}

TEST_CASE_FIXTURE(store_fixture, "the store is looked through in pieces") {
  const auto in = *store->open_scope("ns", 0, simple_layout(512, 1, 1));
  save(in, hashes(0, 300));
  std::size_t seen = 0;
  int pieces = 0;
  block_index at = 0;
  do {
    at = store->for_each_sealed(at, 100, [&](scope_id, std::string_view) { ++seen; });
    ++pieces;
  } while (at != 0);
  CHECK(seen == 300);
  CHECK(pieces == 3);
}

TEST_CASE("the last event of each block says how it is, whatever many threads do") {
  store_fixture at(256 << 10);
  residency_feed feed(1 << 20, {});
  at.store->tell(feed);
  const auto in = *at.store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  std::vector<std::thread> threads;
  for (int seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      for (int i = 0; i < 400; ++i) {
        const hashes one((i * 7 + seed * 13) % 97, 1);
        std::vector<part_claim> claims;
        std::vector<std::uint32_t> busy;
        const std::uint32_t position[] = {0};
        const std::uint32_t cells[] = {0};
        at.store->claim({.in = in,
                         .part = 0,
                         .numa_node = -1,
                         .origin = 1,
                         .hashes = one.list(),
                         .positions = position},
                        claims, busy);
        at.store->commit(claims, cells);
        if (i % 50 == seed) at.store->drop_resident();
      }
    });
  }
  for (auto& each : threads)
    each.join();
  std::vector<residency_event> events;
  CHECK_FALSE(feed.take(events, 1 << 20));
  std::set<std::string> told;
  for (const auto& event : events) {
    if (event.resident) {
      CHECK(told.insert(std::string(event.hash())).second);
    } else {
      CHECK(told.erase(std::string(event.hash())) == 1);
    }
  }
  std::set<std::string> found;
  at.store->for_each_sealed(
      0, 1 << 20, [&](scope_id, std::string_view hash) { found.insert(std::string(hash)); });
  CHECK(found == told);
}
