#include "actors/peer_tier.hpp"

#include <doctest/doctest.h>

#include "tests/actors/peer_fixture.hpp"

using namespace kvd;
using namespace kvd::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

using progress = lower_tier::progress;

struct two_holders {
  shared_world world;
  reader_node reader;
  holder_node a{world, "a:1"};
  holder_node b{world, "b:1"};

  explicit two_holders(bool with_ssd = false) : reader(world, with_ssd) {
    reader.holders = {&a, &b};
    in_a();
    in_b();
  }
  scope_id in_a() { return *a.at.store->open_scope("ns", 0, simple_layout(4096, 2, 1)); }
  scope_id in_b() { return *b.at.store->open_scope("ns", 0, simple_layout(4096, 2, 1)); }
  void always(holder_node& from, loopback_fault fault) {
    world.network.always("reader", from.boot_id, fault);
  }
  // Nothing is left pinned, claimed, locked or quarantined.
  void check_clean() {
    CHECK(reader.at.metrics.pinned_bytes.value() == 0);
    CHECK(reader.at.metrics.inflight_bytes.value() == 0);
    CHECK(reader.at.store->check() == "");
    CHECK(a.sharing.locked_blocks.value() == 0);
    CHECK(b.sharing.locked_blocks.value() == 0);
    CHECK(a.at.metrics.pinned_bytes.value() == 0);
    CHECK(b.at.metrics.pinned_bytes.value() == 0);
    CHECK(world.network.reads() == 0);
  }
};

}  // namespace

TEST_CASE("a block saved on one node is fetched by another, byte for byte") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 10));
  CHECK(f.reader.fetch("r", hashes(0, 12)));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::over);
  CHECK(f.reader.finish("r", hashes(0, 12)) == 10);
  CHECK(f.reader.brought.peers == 10);
  CHECK(f.reader.sharing.fetched_blocks.value() == 10);
  CHECK(f.reader.sharing.fetched_bytes.value() == 10 * 2 * 4096);
  CHECK(f.reader.sharing.fetches_ok.value() == 1);
  const auto seen = f.reader.tier->status();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].node == "a:1");
  CHECK(seen[0].blocks == 10);
  f.check_clean();
}

TEST_CASE("one query blends RAM, SSD and several peers") {
  two_holders f(true);
  holder_node mine(f.world, "self");
  // 0-1 in RAM, 2-3 on SSD, 4-5 on a, 6 in RAM, 7 on SSD, 8-9 on b, 10 nowhere, 11 on a.
  f.reader.ssd.stored = {*hashes(2, 1).list()[0], *hashes(3, 1).list()[0], *hashes(7, 1).list()[0]};
  f.a.save(f.in_a(), hashes(4, 2));
  f.a.save(f.in_a(), hashes(11, 1));
  f.b.save(f.in_b(), hashes(8, 2));
  for (const int id : {0, 1, 6}) {
    const hashes one(id, 1);
    const std::uint32_t first[] = {0};
    auto claims = claim_whole(*f.reader.at.store, f.reader.in(), one.list(), first);
    for (std::uint32_t part = 0; part < 2; ++part)
      fill_part(claims.claimed[0].parts[part].address, 4096, *one.list()[0], part);
    commit_whole(*f.reader.at.store, f.reader.in(), claims.claimed[0].parts);
    f.reader.at.store->unpin(std::span(&claims.claimed[0].parts[0].block, 1));
  }
  CHECK(f.reader.fetch("r", hashes(0, 12)));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::loading);
  f.reader.ssd.bring_all();
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::over);
  CHECK(f.reader.finish("r", hashes(0, 12)) == 10);
  CHECK(f.reader.brought.peers == 4);
  CHECK(f.reader.brought.ssd == 3);
  CHECK(f.reader.sharing.fetches_ok.value() == 2);
  f.check_clean();
}

TEST_CASE("what SSD can complete alone asks no peer") {
  two_holders f(true);
  f.a.save(f.in_a(), hashes(0, 2));
  f.reader.ssd.stored = {*hashes(0, 1).list()[0], *hashes(1, 1).list()[0]};
  CHECK(f.reader.fetch("r", hashes(0, 2)));
  f.reader.ssd.bring_all();
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::over);
  CHECK(f.reader.finish("r", hashes(0, 2)) == 2);
  CHECK(f.reader.sharing.locates.value() == 0);
  f.check_clean();
}

TEST_CASE("a peer that fails is replaced by the next that holds the block") {
  for (const auto what : {loopback_fault::kind::unreachable, loopback_fault::kind::refuse,
                          loopback_fault::kind::lose}) {
    two_holders f;
    f.a.save(f.in_a(), hashes(0, 6));
    f.b.save(f.in_b(), hashes(0, 6));
    f.always(f.a, {.what = what, .pieces = 5});
    CHECK(f.reader.fetch("r", hashes(0, 6)));
    CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::over);
    CHECK(f.reader.finish("r", hashes(0, 6)) == 6);
    CHECK(f.reader.sharing.fetches_failed.value() == 1);
    CHECK(f.reader.sharing.fetches_ok.value() == 1);
    f.check_clean();
  }
}

TEST_CASE("a peer that cannot be reached costs a miss, and is not asked at once again") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 6));
  f.a.reachable = false;
  CHECK(f.reader.fetch("r", hashes(0, 6)));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::over);
  CHECK(f.reader.finish("r", hashes(0, 6)) == 0);
  CHECK(f.reader.tier->status()[0].trouble == "connection refused");
  f.a.reachable = true;
  f.reader.fetch("again", hashes(0, 6));
  CHECK(f.reader.finish("again", hashes(0, 6)) == 0);
  f.reader.pass(seconds(6));
  f.reader.fetch("later", hashes(0, 6));
  CHECK(f.reader.finish("later", hashes(0, 6)) == 6);
  f.check_clean();
}

TEST_CASE("a peer that hangs costs its deadline, and what arrived is kept") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 6));
  f.always(f.a, {.what = loopback_fault::kind::hang, .pieces = 7});
  CHECK(f.reader.fetch("r", hashes(0, 6)));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::loading);
  f.reader.pass(seconds(3));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::over);
  CHECK(f.reader.finish("r", hashes(0, 6)) == 3);
  f.check_clean();
}

TEST_CASE("slots that a late transfer may write to are not used before it has let go") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 4));
  f.always(f.a, {.what = loopback_fault::kind::late, .pieces = 2, .late_by = seconds(20)});
  CHECK(f.reader.fetch("r", hashes(0, 4)));
  f.reader.pass(seconds(3));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::loading);
  // The engine did not wait.
  f.reader.tier->forget_instance(1);
  // Fill all that is left of the pool; a late byte in any of it would be seen.
  const auto in = f.reader.in();
  std::vector<int> saved;
  for (int id = 100; id < 400; ++id) {
    const hashes one(id, 1);
    const std::uint32_t first[] = {0};
    auto claims = claim_whole(*f.reader.at.store, in, one.list(), first);
    if (claims.claimed.empty()) continue;
    for (std::uint32_t part = 0; part < 2; ++part)
      fill_part(claims.claimed[0].parts[part].address, 4096, *one.list()[0], part);
    commit_whole(*f.reader.at.store, in, claims.claimed[0].parts);
    f.reader.at.store->unpin(std::span(&claims.claimed[0].parts[0].block, 1));
    saved.push_back(id);
  }
  CHECK(f.reader.at.metrics.inflight_bytes.value() == 3 * 2 * 4096);
  f.reader.pass(seconds(30));
  std::size_t right = 0;
  for (const auto id : saved)
    right += f.reader.finish("none", hashes(id, 1));
  CHECK(right > 100);
  f.check_clean();
}

TEST_CASE("a node that was started anew is asked who it is, and gives what it has now") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 2));
  f.reader.fetch("r", hashes(0, 2));
  CHECK(f.reader.finish("r", hashes(0, 2)) == 2);
  f.a.restart();
  f.a.save(f.in_a(), hashes(5, 3));
  f.reader.fetch("s", hashes(5, 3));
  f.reader.finish("s", hashes(5, 3));
  f.reader.fetch("t", hashes(5, 3));
  CHECK(f.reader.finish("t", hashes(5, 3)) == 3);
  f.check_clean();
}

TEST_CASE("two queries of one prefix transfer it once") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 8));
  f.always(f.a, {.what = loopback_fault::kind::none, .delay = milliseconds(100)});
  CHECK(f.reader.fetch("one", hashes(0, 8)));
  CHECK(f.reader.fetch("two", hashes(0, 8)));
  CHECK(f.reader.tier->poll(f.reader.id("two")) == progress::loading);
  f.reader.pass(milliseconds(200));
  CHECK(f.reader.tier->poll(f.reader.id("one")) == progress::over);
  CHECK(f.reader.tier->poll(f.reader.id("two")) == progress::over);
  CHECK(f.reader.finish("one", hashes(0, 8)) == 8);
  CHECK(f.reader.finish("two", hashes(0, 8)) == 8);
  CHECK(f.reader.sharing.fetched_blocks.value() == 8);
  f.check_clean();
}

TEST_CASE("an exact set that is not complete anywhere fetches nothing") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 8));
  CHECK(f.reader.fetch("r", hashes(0, 9), true));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::over);
  CHECK(f.reader.finish("r", hashes(0, 9)) == 0);
  CHECK(f.reader.sharing.fetched_blocks.value() == 0);
  f.check_clean();
}

TEST_CASE("a directory that knows too much costs nothing but the question") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 3));
  f.b.save(f.in_b(), hashes(2, 3));
  f.reader.directory->stale = true;
  CHECK(f.reader.fetch("r", hashes(0, 9)));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::over);
  CHECK(f.reader.finish("r", hashes(0, 9)) == 5);
  f.check_clean();
}

TEST_CASE("without a metaserver SSD alone is asked") {
  two_holders f(true);
  f.reader.directory->reachable = false;
  f.world.time.advance(seconds(10));
  f.reader.directories->tick();
  f.world.run();
  f.reader.ssd.stored = {*hashes(0, 1).list()[0]};
  CHECK(f.reader.fetch("r", hashes(0, 2)));
  f.reader.ssd.bring_all();
  CHECK(f.reader.finish("r", hashes(0, 2)) == 1);
  CHECK_FALSE(f.reader.fetch("s", hashes(5, 2)));
  f.check_clean();
}

TEST_CASE("a query that nobody asks for again gives its pins back") {
  two_holders f;
  f.a.save(f.in_a(), hashes(0, 3));
  CHECK(f.reader.fetch("r", hashes(0, 3)));
  CHECK(f.reader.at.metrics.pinned_bytes.value() > 0);
  f.reader.pass(seconds(70));
  CHECK(f.reader.tier->poll(f.reader.id("r")) == progress::none);
  f.check_clean();
}

TEST_CASE("whatever peers do, no wrong byte is found and nothing is left behind") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    seeded_random chance(seed);
    two_holders f(chance.below(2) == 0);
    std::vector<std::string> asked;
    for (int step = 0; step < 60; ++step) {
      auto& one = chance.below(2) == 0 ? f.a : f.b;
      const auto fault = [&] {
        return loopback_fault{.what = static_cast<loopback_fault::kind>(chance.below(6)),
                              .delay = milliseconds(chance.below(3000)),
                              .pieces = chance.below(12),
                              .late_by = milliseconds(chance.below(20'000))};
      };
      const hashes some(static_cast<int>(chance.below(60)), static_cast<int>(1 + chance.below(25)));
      switch (chance.below(12)) {
      case 0: one.reachable = !one.reachable; break;
      case 1:
        if (f.world.network.reads() == 0) one.restart();
        break;
      case 2: one.at.store->drop_resident(); break;
      case 3: f.reader.at.store->drop_resident(); break;
      case 4: f.reader.directory->stale = !f.reader.directory->stale; break;
      case 5: f.always(one, fault()); break;
      case 6:
        f.reader.tier->forget_instance(1);
        f.reader.ssd.give_up();
        break;
      case 7: f.reader.ssd.bring_all(); break;
      case 8: f.reader.ssd.stored.insert(*some.list()[0]); break;
      case 9: one.save(&one == &f.a ? f.in_a() : f.in_b(), some); break;
      default:
        f.reader.pass(milliseconds(chance.below(2000)));
        asked.push_back("r" + std::to_string(step));
        f.reader.fetch(asked.back(), some, chance.below(4) == 0);
        f.reader.finish(chance.below(2) == 0 ? asked.back() : "nobody's", some);
      }
    }
    f.a.reachable = f.b.reachable = true;
    f.reader.ssd.bring_all();
    for (const auto& each : asked)
      f.reader.tier->settle(f.reader.id(each));
    f.reader.pass(seconds(200));
    f.reader.ssd.give_up();
    f.check_clean();
  }
}
