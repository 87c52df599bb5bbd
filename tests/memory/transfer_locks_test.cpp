#include "memory/transfer_locks.hpp"

#include "tests/memory/store_fixture.hpp"

using namespace kvd;
using kvd::test::hashes;
using kvd::test::simple_layout;
using kvd::test::store_fixture;

namespace {

struct locks_fixture : store_fixture {
  sharing_metrics sharing;
  transfer_locks locks{*store, time, random, sharing, std::chrono::seconds(120)};
  scope_id in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
};

}  // namespace

TEST_CASE_FIXTURE(locks_fixture, "a transfer lock keeps blocks in place until it is given back") {
  save(in, hashes(0, 2));
  save(in, hashes(3, 1));
  const auto open = locks.lock(in, hashes(0, 5).list());
  REQUIRE(open);
  CHECK(open->positions == std::vector<std::uint32_t>{0, 1, 3});
  CHECK(sharing.locked_blocks.value() == 3);
  CHECK(metrics.pinned_bytes.value() == 3 * 4096);
  CHECK(store->drop_resident().still_referenced_blocks == 3);
  CHECK(pool->used_bytes() == 3 * 4096);
  CHECK(locks.unlock(open->id) == 3);
  CHECK(locks.unlock(open->id) == 0);
  CHECK(sharing.locked_blocks.value() == 0);
  CHECK(pool->used_bytes() == 0);
}

TEST_CASE_FIXTURE(locks_fixture, "a transfer that is never heard of again ends by time-out") {
  save(in, hashes(0, 2));
  REQUIRE(locks.lock(in, hashes(0, 2).list()));
  time.advance(std::chrono::seconds(119));
  REQUIRE(locks.lock(in, hashes(0, 1).list()));
  CHECK(locks.expire() == 0);
  time.advance(std::chrono::seconds(1));
  CHECK(locks.expire() == 1);
  CHECK(sharing.lock_timeouts.value() == 1);
  CHECK(sharing.locked_blocks.value() == 1);
  time.advance(std::chrono::seconds(120));
  CHECK(locks.expire() == 1);
  CHECK(metrics.pinned_bytes.value() == 0);
}

TEST_CASE_FIXTURE(locks_fixture, "ten thousand transfers leave no lock behind") {
  save(in, hashes(0, 4));
  for (int i = 0; i < 10'000; ++i) {
    const auto open = locks.lock(in, hashes(0, 4).list());
    REQUIRE(open);
    CHECK(locks.unlock(open->id) == 4);
  }
  CHECK(sharing.locked_blocks.value() == 0);
  CHECK(metrics.pinned_bytes.value() == 0);
}

TEST_CASE_FIXTURE(locks_fixture, "a transfer of nothing is a session without blocks") {
  const auto open = locks.lock(in, hashes(0, 3).list());
  REQUIRE(open);
  CHECK(open->blocks.empty());
  CHECK(locks.unlock(open->id) == 0);
}

TEST_CASE_FIXTURE(locks_fixture, "more transfers than the limit are refused, with their pins") {
  save(in, hashes(0, 1));
  for (std::size_t i = 0; i < limits::transfer_sessions_max; ++i)
    REQUIRE(locks.lock(in, hashes(0, 1).list()));
  const auto refused = locks.lock(in, hashes(0, 1).list());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().detail == "65536 transfers are open, limit 65536");
  time.advance(std::chrono::seconds(120));
  CHECK(locks.expire() == limits::transfer_sessions_max);
  CHECK(metrics.pinned_bytes.value() == 0);
}
