#include "transport/peer/loopback_peer.hpp"

#include <doctest/doctest.h>

#include "tests/transport/peer/tracked_read.hpp"

using namespace kvd;
using namespace std::chrono_literals;

namespace {

using fault = loopback_fault;

struct two_nodes {
  two_nodes() : remote(*reader.open(holder.address())) {}

  fake_clock time;
  loopback_network network{time};
  peer_metrics metrics;
  peer_metrics holder_metrics;
  known_pool pool{64 << 10, 1};
  peer_pool nothing;
  loopback_peer holder{network, "holder", pool.offered(), holder_metrics};
  loopback_peer reader{network, "reader", nothing, metrics};
  std::shared_ptr<peer_remote> remote;
};

}  // namespace

TEST_CASE("a read copies every piece, and says so once") {
  two_nodes nodes;
  tracked_read read({{0, 4096}, {8192, 100}, {60000, 1}});
  REQUIRE(nodes.reader.read(nodes.remote, read));
  CHECK(!read.ended());
  CHECK(nodes.network.step() == 1);
  CHECK(read.outcome() == peer_outcome::done);
  CHECK(read.released());
  CHECK(read.arrived() == 3);
  CHECK(read.right(nodes.pool));
  CHECK(nodes.network.step() == 0);
  CHECK(nodes.network.reads() == 0);
  CHECK(nodes.metrics.inflight_bytes.value() == 0);
}

TEST_CASE("a delayed read ends when the clock says so") {
  two_nodes nodes;
  nodes.network.script("reader", "holder", {fault::kind::none, 10ms});
  tracked_read read({{0, 4096}});
  REQUIRE(nodes.reader.read(nodes.remote, read));
  CHECK(nodes.network.step() == 0);
  CHECK(nodes.network.next_due() == nodes.time.now() + 10ms);
  nodes.time.advance(10ms);
  CHECK(nodes.network.step() == 1);
  CHECK(read.outcome() == peer_outcome::done);
}

TEST_CASE("what arrived before a link was lost can be used") {
  two_nodes nodes;
  nodes.network.script("reader", "holder", {fault::kind::lose, 1ms, 2});
  tracked_read read({{0, 4096}, {4096, 4096}, {8192, 4096}});
  REQUIRE(nodes.reader.read(nodes.remote, read));
  nodes.time.advance(1ms);
  nodes.network.step();
  CHECK(read.outcome() == peer_outcome::link_lost);
  CHECK(read.released());
  CHECK(read.arrived() == 2);
  CHECK(read.right(nodes.pool));
  CHECK(read.untouched(2));
}

TEST_CASE("memory of a read that timed out is in quarantine until the late bytes came") {
  two_nodes nodes;
  nodes.network.script("reader", "holder", {fault::kind::late, 1ms, 1, 5s});
  tracked_read read({{0, 4096}, {4096, 4096}});
  read.deadline = nodes.time.now() + 2s;
  REQUIRE(nodes.reader.read(nodes.remote, read));
  nodes.time.advance(2s);
  nodes.network.step();
  CHECK(read.outcome() == peer_outcome::timed_out);
  CHECK(!read.released());
  CHECK(read.arrived() == 1);
  CHECK(read.untouched(1));
  CHECK(nodes.metrics.quarantined_bytes.value() == 4096);
  nodes.time.advance(5s);
  nodes.network.step();
  CHECK(read.released());
  CHECK(!read.untouched(1));
  CHECK(read.arrived() == 1);
  CHECK(nodes.metrics.quarantined_bytes.value() == 0);
}

TEST_CASE("a hung read ends at its deadline and nothing is written after") {
  two_nodes nodes;
  nodes.network.always("reader", "holder", {fault::kind::hang, 0ms, 0, 1s});
  tracked_read read({{0, 4096}});
  read.deadline = nodes.time.now() + 3s;
  REQUIRE(nodes.reader.read(nodes.remote, read));
  nodes.network.step();
  CHECK(!read.ended());
  nodes.time.advance(4s);
  nodes.network.step();
  CHECK(read.outcome() == peer_outcome::timed_out);
  nodes.time.advance(1s);
  nodes.network.step();
  CHECK(read.released());
  CHECK(read.untouched(0));
}

TEST_CASE("a piece beyond the holder's pool is refused, and nothing arrives") {
  two_nodes nodes;
  for (const auto& [offset, bytes] : {std::pair<std::uint64_t, std::uint64_t>{64 << 10, 1},
                                      {(64 << 10) - 1, 2},
                                      {~std::uint64_t{0}, 1}}) {
    tracked_read read({{0, 16}, {offset, bytes}});
    REQUIRE(nodes.reader.read(nodes.remote, read));
    nodes.network.step();
    CHECK(read.outcome() == peer_outcome::refused);
    CHECK(read.arrived() == 0);
  }
}

TEST_CASE("a cancelled read ends with the next step") {
  two_nodes nodes;
  nodes.network.script("reader", "holder", {fault::kind::none, 10s});
  tracked_read read({{0, 4096}});
  REQUIRE(nodes.reader.read(nodes.remote, read));
  nodes.reader.cancel(read);
  nodes.network.step();
  CHECK(read.outcome() == peer_outcome::cancelled);
  CHECK(read.released());
  CHECK(read.untouched(0));
}

TEST_CASE("a port that ends says so to its reads, and a full one takes no more") {
  fake_clock time;
  loopback_network network(time);
  peer_metrics metrics;
  known_pool pool(4096, 1);
  loopback_peer holder(network, "holder", pool.offered(), metrics);
  tracked_read first({{0, 16}});
  tracked_read second({{0, 16}});
  {
    loopback_peer reader(network, "reader", pool.offered(), metrics, 1);
    const auto remote = *reader.open(holder.address());
    REQUIRE(reader.read(remote, first));
    CHECK(!reader.read(remote, second));
  }
  CHECK(first.outcome() == peer_outcome::stopped);
  CHECK(first.released());
  CHECK(!second.ended());
  CHECK(metrics.reads_rejected.value() == 1);
}

TEST_CASE("reads from a node that is gone end as unreachable") {
  fake_clock time;
  loopback_network network(time);
  peer_metrics metrics;
  known_pool pool(4096, 1);
  auto holder = std::make_unique<loopback_peer>(network, "holder", pool.offered(), metrics);
  loopback_peer reader(network, "reader", pool.offered(), metrics);
  const auto remote = *reader.open(holder->address());
  holder.reset();
  tracked_read read({{0, 16}});
  REQUIRE(reader.read(remote, read));
  network.step();
  CHECK(read.outcome() == peer_outcome::unreachable);
  CHECK(read.released());
  CHECK(!reader.open("elsewhere"));
}
