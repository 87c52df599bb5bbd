#include "transport/peer/open_peer_port.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/transport/peer/tracked_read.hpp"

using namespace kvd;
using namespace std::chrono_literals;

namespace {

peer_options only(const std::string& link) {
  peer_options options;
  options.links = {link};
  options.listen_host = "127.0.0.1";
  return options;
}

struct node {
  explicit node(const peer_options& options, const peer_pool& pool) {
    auto opened = open_peer_port(options, pool, time, random, metrics);
    REQUIRE_MESSAGE(opened.has_value(), (opened ? "" : opened.error().detail));
    port = std::move(*opened);
  }
  system_clock time;
  system_random random;
  peer_metrics metrics;
  std::unique_ptr<peer_port> port;
};

std::vector<std::pair<std::uint64_t, std::uint64_t>>
pieces_of(std::uint64_t total, std::uint64_t each, std::uint64_t step) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (std::uint64_t at = 0; at + each <= total; at += step)
    out.emplace_back(at, each);
  return out;
}

}  // namespace

TEST_CASE("pieces of every size arrive over every link") {
  std::string link;
  SUBCASE("tcp") {
    link = "tcp";
  }
  SUBCASE("shm") {
    link = "shm";
  }
  known_pool pool(32 << 20, 1);
  const peer_pool nothing;
  node holder(only(link), pool.offered());
  node reader(only(link), nothing);
  const auto remote = *reader.port->open(holder.port->address());
  CHECK(name(remote->kind()) == (link == "shm" ? "mapped" : link));
  for (const auto& [each, step] : {std::pair{1, 4099},
                                   {4096, 8192},
                                   {100, 100},
                                   {65536, 65536},
                                   {5 << 20, 6 << 20},
                                   {32 << 20, 32 << 20}}) {
    tracked_read read(pieces_of(32 << 20, each, step));
    read.deadline = reader.time.now() + 30s;
    REQUIRE(reader.port->read(remote, read));
    read.wait_released();
    CHECK(read.outcome() == peer_outcome::done);
    CHECK(read.arrived() == read.pieces.size());
    CHECK(read.right(pool));
  }
  CHECK(remote->connected());
  CHECK(reader.metrics.inflight_bytes.value() == 0);
  CHECK(reader.metrics.reads_inflight.value() == 0);
  CHECK(reader.metrics.reads_queued.value() == 0);
}
