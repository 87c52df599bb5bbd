#include <atomic>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cli/bench.hpp"
#include "cli/bench_server.hpp"
#include "core/clock.hpp"

namespace kvd {

TEST_CASE("percentiles are samples, by nearest rank") {
  samples values;
  CHECK(values.median() == 0);
  for (int i = 100; i >= 1; --i)
    values.add(i);
  CHECK(values.percentile(0) == 1);
  CHECK(values.median() == 50);
  CHECK(values.percentile(99) == 99);
  CHECK(values.percentile(99.9) == 100);
  CHECK(values.percentile(100) == 100);
  samples more;
  more.add(1000);
  values.add(more);
  CHECK(values.percentile(100) == 1000);
}

TEST_CASE("known bytes are told apart by every byte, seed and shift") {
  std::vector<std::byte> block(10'000 + 3);
  fill_known(block, 7);
  CHECK_FALSE(first_wrong_byte(block, 7));
  CHECK(first_wrong_byte(block, 8) == 0);
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{4095}, std::size_t{4096}, block.size() - 1}) {
    block[at] ^= std::byte{1};
    CHECK(first_wrong_byte(block, 7) == at);
    block[at] ^= std::byte{1};
  }
  CHECK(first_wrong_byte(std::span(block).subspan(8), 7) == 0);
}

TEST_CASE("known hashes have 32 bytes and differ") {
  CHECK(known_hash(1).size() == 32);
  CHECK(known_hash(1) == known_hash(1));
  CHECK(known_hash(1) != known_hash(2));
}

TEST_CASE("parallel work runs once for each number and reports the first error by number") {
  const system_clock time;
  std::atomic<unsigned> ran{0};
  const auto fine = time_parallel(time, 4, [&](std::size_t i) -> result<void> {
    ran.fetch_add(1u << (8 * i));
    return {};
  });
  REQUIRE(fine);
  CHECK(*fine >= 0);
  CHECK(ran.load() == 0x01010101u);
  const auto wrong = time_parallel(time, 4, [](std::size_t i) -> result<void> {
    if (i >= 2) return fail(errc::io, std::to_string(i));
    return {};
  });
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().detail == "2");
}

TEST_CASE("a table aligns its columns and trails no blanks") {
  CHECK(format_table({{"block", "GB/s"}, {"64kb", "1.00"}, {"2mb", "12.00"}, {"x", ""}}) ==
        "block   GB/s\n64kb    1.00\n2mb    12.00\nx\n");
}

TEST_CASE("the server's addresses are read from the line that says where it listens") {
  const auto found = addresses_in(
      "2026-12-01T04:00:00.000Z INFO  node      listening grpc=127.0.0.1:4711 http=[::1]:80 x=1");
  CHECK(found.grpc == "127.0.0.1:4711");
  CHECK(found.http == "[::1]:80");
  CHECK(addresses_in("listening grpc=127.0.0.1:4711").grpc.empty());
  CHECK(addresses_in("").http.empty());
}

TEST_CASE("a server that cannot start is an error that says so") {
  const system_clock time;
  const auto none = child_server::start({"/nonexistent/kvd", {}}, time);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::unavailable);
  const auto talks = child_server::start({"/bin/echo", {"no room here"}}, time);
  REQUIRE_FALSE(talks);
  CHECK(talks.error().detail.find("no room here") != std::string::npos);
}

}  // namespace kvd
