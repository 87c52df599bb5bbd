// A node and the directory come to agree: by digests, whatever happened, with many at once.

#include "tests/memory/directory_fixture.hpp"

#include <set>
#include <thread>

#include "core/random.hpp"

using namespace kvd;
using namespace kvd::test;
using std::chrono::minutes;

TEST_CASE_FIXTURE(directory_fixture, "blocks live for as long as their owner confirms them") {
  const auto a = alive(1);
  directory_digest mine;
  REQUIRE(store.insert(a, "ns", hashes(0, 5000)));
  for (int i = 0; i < 5000; ++i)
    mine.add(key_of("ns", fmt::format("hash-{:08}", i)));
  for (int hour = 0; hour < 10; ++hour) {
    time.advance(minutes(60));
    REQUIRE(store.heartbeat(a));
    CHECK(store.compare(a, mine.buckets())->empty());
    sweep();
  }
  CHECK(store.usage().owners == 5000);
  // In a bucket that differs nothing is confirmed.
  const auto lost = key_of("ns", "lost");
  mine.add(lost);
  time.advance(minutes(121));
  CHECK(*store.compare(a, mine.buckets()) ==
        std::vector<std::uint32_t>{directory_digest::bucket_of(lost)});
  sweep();
  CHECK(store.usage().owners < 5000);
  CHECK(store.usage().owners > 4900);
}

TEST_CASE_FIXTURE(directory_fixture, "9: after a restart a node's blocks are back by replacing") {
  // A metaserver that starts is empty, and says so by another id.
  const auto a = alive(1);
  const auto all = hashes(0, 3000);
  directory_digest mine;
  for (const auto& each : all.texts)
    mine.add(key_of("ns", each));
  const auto differing = *store.compare(a, mine.buckets());
  CHECK(differing.size() > 900);
  const namespace_blocks blocks[] = {{"ns", all}};
  const auto replaced = store.replace(a, differing, blocks);
  REQUIRE(replaced);
  CHECK(replaced->inserted == 3000);
  CHECK(replaced->removed == 0);
  CHECK(store.compare(a, mine.buckets())->empty());
  CHECK(prefixes(all).at(1) == 3000);
}

TEST_CASE_FIXTURE(directory_fixture, "replacing removes exactly what is not named") {
  const auto a = alive(1);
  const auto b = alive(2);
  REQUIRE(store.insert(a, "ns", hashes(0, 2000)));
  REQUIRE(store.insert(b, "ns", hashes(0, 2000)));
  std::vector<std::uint32_t> buckets;
  for (std::uint32_t i = 0; i < 512; ++i)
    buckets.push_back(i);
  std::vector<std::string> keep;
  std::set<std::string> expected;
  for (int i = 0; i < 4000; ++i) {
    const auto hash = fmt::format("hash-{:08}", i);
    const bool inside = directory_digest::bucket_of(key_of("ns", hash)) < 512;
    if (inside && i % 2 == 0) keep.push_back(hash);
    if (inside ? i % 2 == 0 : i < 2000) expected.insert(hash);
  }
  const hash_set kept(keep);
  const namespace_blocks blocks[] = {{"ns", kept}, {"ns", kept}};
  const auto replaced = store.replace(a, buckets, blocks);
  REQUIRE(replaced);
  std::set<std::string> found;
  for (int i = 0; i < 4000; ++i) {
    const auto hash = fmt::format("hash-{:08}", i);
    if (prefixes(hash_set({hash})).contains(1)) found.insert(hash);
  }
  CHECK(found == expected);
  CHECK(store.usage().owners == expected.size() + 2000);
  // Again: nothing changes.
  const auto again = store.replace(a, buckets, blocks);
  CHECK(again->inserted == 0);
  CHECK(again->removed == 0);
  // To hold nothing in a bucket is possible; a block of another bucket is refused.
  const std::uint32_t only[] = {700};
  CHECK(store.replace(a, only, blocks).error().code == errc::invalid_argument);
  CHECK(store.replace(a, std::vector<std::uint32_t>{1024}, {}).error().detail ==
        "bucket 1024 does not exist; there are 1024");
  CHECK(store.replace(a, buckets, {})->removed == keep.size());
}

TEST_CASE_FIXTURE(directory_fixture, "against a model: whatever comes, the answers are the same") {
  // Sets of hashes by node, in the order of a seed.
  const std::uint64_t seed = 20261201;
  INFO("seed " << seed);
  seeded_random random(seed);
  std::map<int, std::set<int>> model;
  std::vector<node_session> sessions;
  for (int n = 0; n < 5; ++n)
    sessions.push_back(alive(n));
  for (int step = 0; step < 3000; ++step) {
    const int n = static_cast<int>(random.below(5));
    const int first = static_cast<int>(random.below(3000));
    const int count = static_cast<int>(random.below(60)) + 1;
    const auto part = hashes(first, count);
    switch (random.below(3)) {
    case 0: {
      REQUIRE(store.insert(sessions[static_cast<std::size_t>(n)], "ns", part));
      for (int i = first; i < first + count; ++i)
        model[n].insert(i);
      break;
    }
    case 1: {
      std::uint64_t expected = 0;
      for (int i = first; i < first + count; ++i)
        expected += model[n].erase(i);
      CHECK(*store.remove(sessions[static_cast<std::size_t>(n)], "ns", part) == expected);
      break;
    }
    default: {
      std::map<int, std::uint32_t> expected;
      for (int m = 0; m < 5; ++m) {
        std::uint32_t length = 0;
        while (length < static_cast<std::uint32_t>(count) &&
               model[m].contains(first + static_cast<int>(length)))
          ++length;
        if (length > 0) expected[m] = length;
      }
      CHECK(prefixes(part) == expected);
    }
    }
  }
  std::set<int> keys;
  std::uint64_t owners = 0;
  for (int n = 0; n < 5; ++n) {
    directory_digest digest;
    for (const int i : model[n])
      digest.add(key_of("ns", fmt::format("hash-{:08}", i)));
    CHECK(store.compare(sessions[static_cast<std::size_t>(n)], digest.buckets())->empty());
    keys.insert(model[n].begin(), model[n].end());
    owners += model[n].size();
  }
  CHECK(store.usage().owners == owners);
  CHECK(store.usage().keys == keys.size());
}

TEST_CASE_FIXTURE(directory_fixture, "many threads insert, ask and leave at once") {
  // For ThreadSanitizer above all; in the end the books balance.
  std::vector<std::jthread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([this, n] {
      const auto name = fmt::format("node-{}:1", n);
      for (int round = 0; round < 20; ++round) {
        const auto id = uuid_text(n * 100 + round);
        const node_session self{name, id};
        if (!store.heartbeat(self)) continue;
        store.insert(self, "ns", hashes(0, 700));
        store.remove(self, "ns", hashes(100, 50));
        store.compare(self, std::vector<std::uint64_t>(1024));
        store.replace(self, std::vector<std::uint32_t>{1, 2, 3}, {});
        if (round < 19) store.unregister(self);
      }
    });
  }
  threads.emplace_back([this] {
    for (int i = 0; i < 300; ++i) {
      store.query_prefix("ns", hashes(0, 700));
      store.locate("ns", hashes(0, 700), "node-1:1", true);
      (void)store.nodes();
      (void)store.usage();
    }
  });
  std::jthread upkeep([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      store.begin_sweep();
      store.upkeep();
    }
  });
  threads.clear();
  upkeep.request_stop();
  upkeep.join();
  run_upkeep();
  std::uint64_t owners = 0;
  for (const auto& each : store.nodes())
    owners += each.owners;
  CHECK(store.nodes().size() == 4);
  CHECK(store.usage().owners == owners);
  const auto found = *store.query_prefix("ns", hashes(0, 1));
  for (const auto& each : found)
    CHECK(each.length == 1);
}
