#include "tests/memory/directory_fixture.hpp"

using namespace kvd;
using namespace kvd::test;
using std::chrono::minutes;
using std::chrono::seconds;

TEST_CASE_FIXTURE(directory_fixture, "a node's prefix is its leading hashes without a gap") {
  const auto a = alive(1);
  const auto b = alive(2);
  REQUIRE(store.insert(a, "ns", hashes(0, 10)));
  REQUIRE(store.insert(b, "ns", hashes(0, 3)));
  REQUIRE(store.insert(b, "ns", hashes(5, 5)));
  CHECK(prefixes(hashes(0, 20)) == std::map<int, std::uint32_t>{{1, 10}, {2, 3}});
  CHECK(prefixes(hashes(4, 20)) == std::map<int, std::uint32_t>{{1, 6}});
  CHECK(prefixes(hashes(10, 5)).empty());
}

TEST_CASE_FIXTURE(directory_fixture, "32: the same hash in two namespaces is two blocks") {
  REQUIRE(store.insert(alive(1), "tenant-a", hashes(0, 4)));
  CHECK(prefixes(hashes(0, 4), "tenant-a").size() == 1);
  CHECK(prefixes(hashes(0, 4), "tenant-b").empty());
  CHECK(store.locate("tenant-b", hashes(0, 4), "", true)->runs.empty());
  CHECK(*store.remove(node(1), "tenant-b", hashes(0, 4)) == 0);
}

TEST_CASE_FIXTURE(directory_fixture, "who is unknown or another run is told so") {
  CHECK(store.insert(node(1), "ns", hashes(0, 1)).error().detail == "unknown node");
  CHECK(store.remove(node(1), "ns", hashes(0, 1)).error().detail == "unknown node");
  CHECK(store.unregister(node(1)).error().detail == "unknown node");
  alive(1);
  CHECK(store.insert(node(1, 7), "ns", hashes(0, 1)).error().detail == "stale node session");
  CHECK(store.heartbeat(node(1, 7)).error().detail == "stale node session");
  CHECK(store.heartbeat(node(1, 7)).error().code == errc::instance_missing);
  CHECK(store.compare(node(1, 7), std::vector<std::uint64_t>(1024)).error().detail ==
        "stale node session");
  for (const auto* wrong :
       {"", "x", "67e55044-10b1-426f-9247-bb680e5fe0cg", "67e55044-10b1-426f-92470bb680e5fe0c8"}) {
    CHECK(store.heartbeat({"a:1", wrong}).error().code == errc::invalid_argument);
  }
  for (const auto* right :
       {"67e55044-10b1-426f-9247-bb680e5fe0c8", "67E5504410B1426F9247BB680E5FE0C8",
        "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
        "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8"}) {
    CHECK(store.heartbeat({"a:1", right}));
  }
}

TEST_CASE_FIXTURE(directory_fixture, "7: a dead node's blocks are hidden after the stale time") {
  const auto a = alive(1);
  REQUIRE(store.insert(a, "ns", hashes(0, 4)));
  time.advance(seconds(30));
  CHECK(prefixes(hashes(0, 4)).size() == 1);
  time.advance(seconds(1));
  CHECK(prefixes(hashes(0, 4)).empty());
  CHECK(store.locate("ns", hashes(0, 4), "", true)->runs.empty());
  CHECK(store.usage().nodes_stale == 1);
  // It was only slow: its next sign of life brings everything back.
  REQUIRE(store.heartbeat(a));
  CHECK(prefixes(hashes(0, 4)) == std::map<int, std::uint32_t>{{1, 4}});
}

TEST_CASE_FIXTURE(directory_fixture, "11: every call of a node is a sign of life") {
  const auto a = alive(1);
  for (int i = 0; i < 10; ++i) {
    time.advance(seconds(20));
    REQUIRE(store.insert(a, "ns", hashes(10 * i, 10)));
  }
  CHECK(prefixes(hashes(0, 100)).at(1) == 100);
}

TEST_CASE_FIXTURE(directory_fixture, "a node's next run takes over once the first one is stale") {
  const auto first = alive(1, 0);
  REQUIRE(store.insert(first, "ns", hashes(0, 4)));
  CHECK(!store.heartbeat(node(1, 1)));
  time.advance(seconds(31));
  const auto second = alive(1, 1);
  // Not one of the blocks of the run before is an answer, though none is removed yet.
  CHECK(store.usage().owners == 4);
  CHECK(prefixes(hashes(0, 4)).empty());
  CHECK(store.insert(first, "ns", hashes(0, 4)).error().detail == "stale node session");
  REQUIRE(store.insert(second, "ns", hashes(0, 2)));
  CHECK(prefixes(hashes(0, 4)) == std::map<int, std::uint32_t>{{1, 2}});
  run_upkeep();
  CHECK(store.usage().owners == 2);
  CHECK(store.usage().keys == 2);
  CHECK(prefixes(hashes(0, 4)) == std::map<int, std::uint32_t>{{1, 2}});
}

TEST_CASE_FIXTURE(directory_fixture, "7: a farewell hides a node's blocks at once") {
  const auto a = alive(1);
  REQUIRE(store.insert(a, "ns", hashes(0, 5000)));
  CHECK(*store.unregister(a) == 5000);
  CHECK(prefixes(hashes(0, 4)).empty());
  CHECK(store.usage().nodes_leaving == 1);
  CHECK(store.insert(a, "ns", hashes(0, 1)).error().detail == "unknown node");
  // The same run may come back before its old blocks are gone.
  REQUIRE(store.heartbeat(a));
  REQUIRE(store.insert(a, "ns", hashes(0, 2)));
  CHECK(prefixes(hashes(0, 4)) == std::map<int, std::uint32_t>{{1, 2}});
  run_upkeep();
  CHECK(store.usage().owners == 2);
  CHECK(store.usage().nodes_leaving == 0);
  CHECK(prefixes(hashes(0, 4)) == std::map<int, std::uint32_t>{{1, 2}});
}

TEST_CASE_FIXTURE(directory_fixture,
                  "12: removing a node goes in slices and touches no other node") {
  const auto a = alive(1);
  const auto b = alive(2);
  REQUIRE(store.insert(a, "ns", hashes(0, 20'000)));
  REQUIRE(store.insert(b, "ns", hashes(10'000, 20'000)));
  REQUIRE(store.unregister(a));
  int slices = 0;
  while (store.upkeep()) {
    const auto left = store.usage().owners;
    CHECK(left + (slices + 1) * (directory_store::records_a_slice + 1000) >= 40'000);
    CHECK(prefixes(hashes(10'000, 100)) == std::map<int, std::uint32_t>{{2, 100}});
    ++slices;
  }
  CHECK(slices >= 10);
  CHECK(store.usage().owners == 20'000);
  CHECK(store.usage().keys == 20'000);
}

TEST_CASE_FIXTURE(directory_fixture, "only the owner's own session removes its blocks") {
  const auto a = alive(1);
  const auto b = alive(2);
  REQUIRE(store.insert(a, "ns", hashes(0, 4)));
  REQUIRE(store.insert(b, "ns", hashes(0, 4)));
  CHECK(*store.remove(b, "ns", hashes(2, 4)) == 2);
  CHECK(prefixes(hashes(0, 4)) == std::map<int, std::uint32_t>{{1, 4}, {2, 2}});
  CHECK(*store.remove(b, "ns", hashes(2, 4)) == 0);
  CHECK(!store.remove(node(1, 9), "ns", hashes(0, 4)));
}

TEST_CASE_FIXTURE(directory_fixture, "the third new owner is told which blocks it may drop") {
  REQUIRE(store.insert(alive(1), "ns", hashes(0, 4)));
  CHECK(store.insert(alive(2), "ns", hashes(0, 4))->reclaimable.empty());
  const auto c = alive(3);
  CHECK(store.insert(c, "ns", hashes(2, 4))->reclaimable == std::vector<std::uint32_t>{0, 1});
  CHECK(store.insert(c, "ns", hashes(2, 4))->reclaimable.empty());  // no new owner
  // Owners that are hidden do not count.
  time.advance(seconds(31));
  REQUIRE(store.heartbeat(c));
  CHECK(store.insert(alive(4), "ns", hashes(2, 2))->reclaimable.empty());
}

TEST_CASE_FIXTURE(directory_fixture, "a block that is inserted twice is one record") {
  const auto a = alive(1);
  CHECK(store.insert(a, "ns", hashes(0, 4))->added == 4);
  CHECK(store.insert(a, "ns", hashes(0, 4))->added == 0);
  const hash_set twice({"x", "x"});
  CHECK(store.insert(a, "ns", twice)->added == 1);
  CHECK(store.usage().owners == 5);
  CHECK(store.usage().keys == 5);
  CHECK(*store.remove(a, "ns", twice) == 1);
  CHECK(prefixes(hash_set({"hash-00000000", "hash-00000000"})).at(1) == 2);
}

TEST_CASE_FIXTURE(directory_fixture, "a sweep drops what is older than the time to live") {
  const auto a = alive(1);
  REQUIRE(store.insert(a, "ns", hashes(0, 1000)));
  time.advance(minutes(60));
  REQUIRE(store.insert(a, "ns", hashes(500, 1000)));  // 500 of them again
  time.advance(minutes(61));
  REQUIRE(store.heartbeat(a));
  sweep();
  CHECK(store.usage().owners == 1000);
  CHECK(store.usage().swept_owners == 500);
  CHECK(store.usage().swept_keys == 500);
  CHECK(prefixes(hashes(0, 4)).empty());
  CHECK(prefixes(hashes(500, 4)).at(1) == 4);
  time.advance(minutes(60));
  REQUIRE(store.heartbeat(a));
  sweep();
  CHECK(store.usage().owners == 0);
  CHECK(store.usage().nodes_fresh == 1);
}

TEST_CASE_FIXTURE(directory_fixture, "a sweep forgets a node that was silent for that long") {
  const auto a = alive(1);
  REQUIRE(store.insert(a, "ns", hashes(0, 1000)));
  time.advance(minutes(120));
  sweep();
  CHECK(store.usage().nodes_stale == 1);
  time.advance(seconds(2));
  sweep();
  CHECK(store.usage().nodes_stale == 0);
  CHECK(store.usage().owners == 0);
  CHECK(store.usage().swept_nodes == 1);
  CHECK(store.usage().swept_owners == 1000);
  CHECK(store.usage().swept_keys == 1000);
  CHECK(store.insert(a, "ns", hashes(0, 1)).error().detail == "unknown node");
}

TEST_CASE_FIXTURE(directory_fixture,
                  "41: a full directory refuses, keeps what it has, and says so") {
  directory_store small({.owners_max = 1000, .id = "d"}, time);
  const auto a = node(1);
  REQUIRE(small.heartbeat(a));
  REQUIRE(small.insert(a, "ns", hashes(0, 900)));
  const auto refused = small.insert(a, "ns", hashes(800, 300));
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(refused.error().detail == "the directory is full: no room for 100 of the blocks; limit "
                                  "1000 (block, node) records (--max-entries)");
  CHECK(small.usage().owners == 1000);
  CHECK(small.usage().refused_owners == 100);
  CHECK(small.query_prefix("ns", hashes(0, 1000))->front().length == 1000);
  // What is known may come again; what was removed makes room.
  CHECK(small.insert(a, "ns", hashes(0, 1000)));
  CHECK(*small.remove(a, "ns", hashes(0, 10)) == 10);
  CHECK(small.insert(a, "ns", hashes(5000, 10)));
  CHECK(!small.insert(a, "ns", hashes(6000, 1)));
}

TEST_CASE_FIXTURE(directory_fixture, "nodes are bounded, and a slot is free after a farewell") {
  for (std::uint32_t i = 0; i < limits::directory_nodes_max; ++i) {
    const auto name = fmt::format("node-{}:1", i);
    REQUIRE(store.heartbeat({name, uuid_text(1)}));
  }
  CHECK(store.heartbeat({"one-more:1", uuid_text(1)}).error().code == errc::limit_exceeded);
  REQUIRE(store.unregister({"node-7:1", uuid_text(1)}));
  run_upkeep();
  CHECK(store.heartbeat({"one-more:1", uuid_text(1)}));
}

TEST_CASE_FIXTURE(directory_fixture, "wrong sizes are refused, with the limit") {
  const auto a = alive(1);
  const hash_set big({std::string(limits::directory_hash_bytes_max + 1, 'x')});
  CHECK(store.insert(a, "ns", big).error().detail == "block_hashes[0] has 129 bytes, limit 128");
  CHECK(store.query_prefix("ns", big).error().code == errc::invalid_argument);
  CHECK(store.compare(a, std::vector<std::uint64_t>(3)).error().detail ==
        "3 digests; exactly 1024 are needed");
  CHECK(store.heartbeat({"", uuid_text(1)}).error().code == errc::invalid_argument);
  CHECK(store.heartbeat({std::string(513, 'n'), uuid_text(1)}).error().code ==
        errc::invalid_argument);
}

TEST_CASE_FIXTURE(directory_fixture, "locating tells runs with all their owners") {
  const auto a = alive(1);
  REQUIRE(store.insert(a, "ns", hashes(0, 4)));
  time.advance(seconds(1));
  const auto b = alive(2);
  REQUIRE(store.insert(b, "ns", hashes(2, 4)));
  const auto found = *store.locate("ns", hashes(0, 10), "", false);
  REQUIRE(found.runs.size() == 3);
  const auto names_of = [&](std::size_t run) {
    std::vector<std::string> out;
    for (const auto each : found.runs[run].owners)
      out.push_back(found.nodes[each]);
    return out;
  };
  CHECK(found.runs[0].first == 0);
  CHECK(found.runs[0].count == 2);
  CHECK(names_of(0) == std::vector<std::string>{std::string(a.node)});
  CHECK(found.runs[1].first == 2);
  CHECK(found.runs[1].count == 2);
  CHECK(names_of(1) == std::vector{std::string(b.node), std::string(a.node)});  // heard of last
  CHECK(found.runs[2].count == 2);
  // Without the one who asks, and beyond what nobody has.
  CHECK(store.locate("ns", hashes(0, 10), a.node, false)->runs.empty());
  const auto rest = *store.locate("ns", hashes(0, 10), a.node, true);
  REQUIRE(rest.runs.size() == 1);
  CHECK(rest.runs[0].first == 2);
  CHECK(rest.runs[0].count == 4);
  CHECK(rest.nodes == std::vector{std::string(b.node)});
}

TEST_CASE_FIXTURE(directory_fixture, "of many owners a run names the eight heard of last") {
  for (int n = 1; n <= 20; ++n) {
    REQUIRE(store.insert(alive(n), "ns", hashes(0, 3)));
    time.advance(seconds(1));
  }
  const auto found = *store.locate("ns", hashes(0, 3), "", false);
  REQUIRE(found.runs.size() == 1);
  CHECK(found.runs[0].owners.size() == 8);
  CHECK(found.nodes.front() == "10.0.0.20:50055");
  CHECK(found.nodes.back() == "10.0.0.13:50055");
  CHECK(prefixes(hashes(0, 3)).size() == 20);
}

TEST_CASE_FIXTURE(directory_fixture, "a sweep counts by how many nodes a block is held") {
  for (int n = 1; n <= 5; ++n)
    REQUIRE(store.insert(alive(n), "ns", hashes(0, 100 * n)));
  sweep();
  const auto now = store.usage();
  CHECK(now.redundancy == std::array<std::uint64_t, 4>{100, 100, 100, 200});
  CHECK(now.redundancy_mean == doctest::Approx(1500.0 / 500));
  CHECK(now.keys == 500);
  CHECK(now.owners == 1500);
  CHECK(now.sweeps == 1);
}

TEST_CASE_FIXTURE(directory_fixture, "an operator purges stale nodes, and no others") {
  REQUIRE(store.insert(alive(1), "ns", hashes(0, 10)));
  time.advance(seconds(31));
  alive(2);
  const auto purged = *store.purge_stale();
  CHECK(purged.nodes == std::vector<std::string>{"10.0.0.1:50055"});
  CHECK(purged.owners == 10);
  run_upkeep();
  const auto nodes = store.nodes();
  REQUIRE(nodes.size() == 1);
  CHECK(nodes[0].node == "10.0.0.2:50055");
  CHECK(nodes[0].node_id == uuid_text(2000));
  CHECK(nodes[0].state == node_state::fresh);
}
