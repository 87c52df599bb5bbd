#include "tests/memory/store_fixture.hpp"

using namespace kvd;
using kvd::test::hashes;
using kvd::test::simple_layout;
using kvd::test::store_fixture;

namespace {

struct lease_fixture : store_fixture {
  scope_id in = *store->open_scope("ns", 0, simple_layout(4096, 1, 1));
  std::vector<block_index> out;

  lease_id grant(std::uint32_t consumers, int blocks) {
    save(in, hashes(0, blocks));
    std::vector<block_index> pinned;
    store->pin_prefix(in, hashes(0, blocks).list(), pinned);
    return *leases->grant(1, in, consumers, pinned);
  }
  std::string_view text(const lease_id& id) { return {id.data(), id.size()}; }
};

}  // namespace

TEST_CASE_FIXTURE(lease_fixture, "a lease serves as many workers as it was made for") {
  const auto id = grant(2, 3);
  CHECK(metrics.leases.value() == 1);
  CHECK(*leases->redeem(text(id), 1, out) == in);
  CHECK(*leases->redeem(text(id), 1, out) == in);
  CHECK(out.size() == 6);
  CHECK(metrics.leases.value() == 0);
  const auto third = leases->redeem(text(id), 1, out);
  REQUIRE(!third);
  CHECK(third.error().code == errc::lease_missing);
  CHECK(third.error().detail == "query lease is unknown or expired");
  CHECK(metrics.pinned_bytes.value() == 3 * 4096);
  store->unpin(out);
  CHECK(metrics.pinned_bytes.value() == 0);
}

TEST_CASE_FIXTURE(lease_fixture, "release ends a lease whoever still meant to load") {
  const auto id = grant(4, 2);
  leases->redeem(text(id), 1, out);
  store->unpin(out);
  CHECK(leases->release(text(id)));
  CHECK(leases->release(text(id)).error().code == errc::lease_missing);
  CHECK(metrics.pinned_bytes.value() == 0);
}

TEST_CASE_FIXTURE(lease_fixture, "a lease expires by the clock, at its next use or in upkeep") {
  const auto first = grant(1, 2);
  time.advance(std::chrono::seconds(599));
  const auto second = grant(1, 2);
  time.advance(std::chrono::seconds(2));
  CHECK(!leases->redeem(text(first), 1, out));
  CHECK(metrics.lease_expirations.value() == 1);
  time.advance(std::chrono::seconds(600));
  CHECK(leases->expire() == 1);
  CHECK(!leases->release(text(second)));
  CHECK(metrics.leases.value() == 0);
  CHECK(metrics.leased_blocks.value() == 0);
}

TEST_CASE_FIXTURE(lease_fixture, "a used-up id never matches the lease that took its place") {
  const auto old = grant(1, 2);
  CHECK(leases->release(text(old)));
  const auto fresh = grant(1, 2);
  CHECK(!leases->redeem(text(old), 1, out));
  CHECK(leases->redeem(text(fresh), 1, out));
  store->unpin(out);
}

TEST_CASE_FIXTURE(lease_fixture, "another instance's lease is refused and stays") {
  const auto id = grant(1, 2);
  CHECK(leases->redeem(text(id), 2, out).error().code == errc::invalid_argument);
  CHECK(leases->redeem(text(id), 1, out));
  store->unpin(out);
}

TEST_CASE_FIXTURE(lease_fixture, "an instance's leases go with it") {
  const auto id = grant(1, 2);
  leases->drop_instance(2);
  CHECK(metrics.leases.value() == 1);
  leases->drop_instance(1);
  CHECK(metrics.leases.value() == 0);
  CHECK(!leases->redeem(text(id), 1, out));
}

TEST_CASE_FIXTURE(lease_fixture, "bytes that are no lease id are unknown, whatever their length") {
  CHECK(!leases->release(""));
  CHECK(!leases->release("short"));
  CHECK(!leases->release(std::string(16, '\xff')));
  CHECK(!leases->release(std::string(17, 'x')));
}

TEST_CASE_FIXTURE(lease_fixture, "leased blocks outlive a storm of saves between query and load") {
  const auto id = grant(1, 8);
  for (int round = 0; round < 10; ++round)
    save(in, hashes(1000 + round * 300, 300));
  REQUIRE(leases->redeem(text(id), 1, out));
  CHECK(out.size() == 8);
  CHECK(hits(in, hashes(0, 8)) == 8);
  store->unpin(out);
}
