// Three servers and two metaservers that live, die, are cut off and come back, under one seed.
//
// Whatever the seed does: every byte that a query brings is the one that was saved, every query
// ends, and when the trouble is over each metaserver knows within seconds exactly what each server
// holds, and nothing is pinned, locked or under way.

#include <doctest/doctest.h>

#include "tests/sim/fleet_world.hpp"

using namespace kvd;
using namespace kvd::sim;
using kvd::test::hashes;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

struct asked {
  std::string node;
  int life;
  std::string request;
  int first;
  int count;
  time_point at;
};

struct totals {
  std::size_t queries = 0;
  std::size_t hits = 0;
  std::uint64_t fetched = 0;
  std::uint64_t failed = 0;
  std::uint64_t mended = 0;
};

void check_directory(fleet_world& f, const fleet_meta& meta) {
  for (const auto& node : f.nodes) {
    const auto held = node->holds();
    std::vector<std::string> all(held.begin(), held.end());
    for (int id = 0; id < 400; ++id) {
      const std::string hash = *hashes(id, 1).list()[0];
      if (held.count(hash) == 0) all.push_back(hash);
    }
    std::vector<const std::string*> names;
    for (const auto& each : all)
      names.push_back(&each);
    const auto name = directory_name_of(node->alive->store->scope_of(node->alive->scope));
    const auto found = meta.known->locate(name, names, "nobody", true);
    REQUIRE(found);
    std::set<std::string> listed;
    for (const auto& run : found->runs)
      for (auto i = run.first; i < run.first + run.count; ++i)
        for (const auto owner : run.owners)
          if (found->nodes[owner] == node->name) listed.insert(all[i]);
    CHECK(listed == held);
  }
}

class story {
public:
  story(std::uint64_t seed, totals& sum) : f_(seed, 2, 3), chance_(f_.system.random()), sum_(sum) {
    f_.pass(seconds(2));
  }

  void tell() {
    for (int step = 0; step < 80; ++step) {
      if (chance_.below(3) == 0) {
        trouble();
      } else {
        work(step);
      }
      f_.pass(milliseconds(chance_.below(1500)));
      answer();
    }
    end_trouble();
    check_nothing_is_left();
    // A metaserver that dies now is complete again within ten seconds.
    f_.metas[0].known = nullptr;
    f_.pass(milliseconds(chance_.below(3000)));
    f_.start_meta(f_.metas[0]);
    f_.pass(seconds(10));
    check_directory(f_, f_.metas[0]);
  }

private:
  fleet_node& any_node() { return *f_.nodes[chance_.below(f_.nodes.size())]; }

  void trouble() {
    auto& node = any_node();
    auto& other = any_node();
    auto& meta = f_.metas[chance_.below(f_.metas.size())];
    switch (chance_.below(7)) {
    case 0: f_.network.cut(node.name, other.name, chance_.below(3) > 0); break;
    case 1: f_.network.cut(node.name, meta.name, chance_.below(3) > 0); break;
    case 2:
      if (meta.known) {
        meta.known = nullptr;
      } else {
        f_.start_meta(meta);
      }
      break;
    case 3:
      if (!node.alive) {
        node.start();
      } else if (chance_.below(2) == 0) {
        node.kill();
      }
      break;
    case 4:
      if (node.alive && chance_.below(3) == 0) node.alive->store->drop_resident();
      break;
    case 5:
      if (node.alive && other.alive) {
        f_.bytes.always(node.boot_id, other.boot_id,
                        {.what = static_cast<loopback_fault::kind>(chance_.below(6)),
                         .delay = milliseconds(chance_.below(2500)),
                         .pieces = chance_.below(20),
                         .late_by = milliseconds(chance_.below(9000))});
      }
      break;
    default:
      if (node.alive) node.alive->tier->forget_instance(1);
    }
  }

  void work(int step) {
    auto& node = any_node();
    const auto first = static_cast<int>(chance_.below(100));
    const auto count = static_cast<int>(1 + chance_.below(20));
    if (!node.alive) return;
    if (chance_.below(5) < 2) {
      node.save(hashes(first, count));
      return;
    }
    const auto request = "r" + std::to_string(step);
    ++sum_.queries;
    if (node.ask(request, hashes(first, count)))
      open_.push_back({node.name, node.lives, request, first, count, f_.system.time().now()});
  }

  void answer() {
    std::erase_if(open_, [&](const asked& each) {
      auto& at = *f_.node(each.node);
      if (!at.alive || at.lives != each.life) return true;
      if (!at.over(each.request)) {
        REQUIRE(f_.system.time().now() - each.at < seconds(65));
        return false;
      }
      sum_.hits += at.take(each.request, hashes(each.first, each.count));
      return true;
    });
  }

  void end_trouble() {
    f_.network.heal();
    for (auto& meta : f_.metas)
      if (!meta.known) f_.start_meta(meta);
    for (auto& node : f_.nodes)
      if (!node->alive) node->start();
    for (auto& node : f_.nodes)
      for (auto& other : f_.nodes)
        f_.bytes.always(node->boot_id, other->boot_id, {});
    for (const auto& each : open_) {
      auto& at = *f_.node(each.node);
      if (at.alive && at.lives == each.life) at.take(each.request, hashes(each.first, each.count));
    }
    f_.pass(seconds(100));
  }

  void check_nothing_is_left() {
    for (const auto& node : f_.nodes) {
      auto& life = *node->alive;
      // A comparison may be on its way just now.
      for (int i = 0; i < 200 && !life.directories->settled(); ++i)
        f_.pass(milliseconds(20));
      CHECK(life.directories->settled());
      CHECK(life.store_numbers.pinned_bytes.value() == 0);
      CHECK(life.store_numbers.inflight_bytes.value() == 0);
      CHECK(life.sharing.locked_blocks.value() == 0);
      CHECK(life.store->check() == "");
      CHECK(life.control.task_failures.value() == 0);
      sum_.fetched += life.sharing.fetched_blocks.value();
      sum_.failed += life.sharing.fetches_failed.value();
      sum_.mended += life.sharing.buckets_mended.value();
    }
    CHECK(f_.bytes.reads() == 0);
    for (const auto& meta : f_.metas)
      check_directory(f_, meta);
  }

  fleet_world f_;
  seeded_random& chance_;
  totals& sum_;
  std::vector<asked> open_;
};

}  // namespace

TEST_CASE("a fleet loads no wrong byte, ends every query and keeps its directory right") {
  totals sum;
  for_each_seed(200, [&](std::uint64_t seed) { story(seed, sum).tell(); });
  MESSAGE("queries ", sum.queries, ", hits compared ", sum.hits, ", fetched ", sum.fetched,
          ", fetches failed ", sum.failed, ", buckets mended ", sum.mended);
  CHECK(sum.hits > 0);
}
