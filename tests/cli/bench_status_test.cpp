#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cli/bench.hpp"
#include "cli/status.hpp"

namespace kvd {

namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a full status is told in people's units") {
  const auto text = describe_status(R"({"version":"0.1.0","boot_id":"ab12","uptime_seconds":3725,
    "state":"ready",
    "pool":{"capacity_bytes":1073741824,"claimed_bytes":536870912,"used_bytes":268435456,
      "nodes":[{"node":0,"capacity_bytes":1073741824,"used_bytes":268435456}],
      "classes":[{"slot_bytes":65536,"slots":4096,"used":4000}]},
    "store":{"resident_blocks":4000,"resident_bytes":262144000,"leases":2,"policy":"s3fifo"},
    "namespaces":[{"name":"llama","resident_blocks":4000,"hit_ratio":0.25}],
    "instances":[],
    "ssd":{"on":true,"why_off":"","files":[{"path":"/mnt/kvd","backend":"io_uring","records":7}]},
    "copy":{"save_queue":1,"load_queue":0,"inflight":3},
    "hit_ceiling":[{"window":"15m","ceiling":0.5}]})");
  REQUIRE(text);
  CHECK(has(*text, "kvd 0.1.0  state ready  up 1 h 2 min  boot ab12\n"));
  CHECK(has(*text, "256.0 MiB of 1.0 GiB used (25.0 %), 512.0 MiB claimed\n"));
  CHECK(has(*text, "64.0 KiB"));
  CHECK(has(*text, "policy s3fifo"));
  CHECK(has(*text, "llama"));
  CHECK(has(*text, "25.0 %"));
  CHECK(has(*text, "instances   none\n"));
  CHECK(has(*text, "on yes"));
  CHECK(has(*text, "/mnt/kvd"));
  CHECK(has(*text, "io_uring"));
  CHECK(has(*text, "save queue 1, load queue 0, inflight 3"));
  CHECK(has(*text, "50.0 %"));
}

TEST_CASE("a status without most fields is still told") {
  const auto text = describe_status(R"({"version":"9","pool":7,"store":[],"namespaces":null})");
  REQUIRE(text);
  CHECK(*text == "kvd 9  state ?  up ?  boot ?\n");
}

TEST_CASE("an answer that is no JSON object is refused") {
  for (const auto* wrong : {"", "{", "[]", "<html>"}) {
    const auto text = describe_status(wrong);
    REQUIRE_FALSE(text);
    CHECK(text.error().code == errc::io);
  }
}

TEST_CASE("status of an address where nobody listens exits with 1") {
  // Port 1 of loopback: nothing listens there, and nothing may without root.
  const std::vector<std::string> args{"--http", "127.0.0.1:1"};
  CHECK(status(args) == bench_failed);
}

TEST_CASE("status refuses what it does not know") {
  const std::vector<std::string> args{"--htp", "127.0.0.1:1"};
  CHECK(status(args) == bench_usage);
}

}  // namespace kvd
