#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cli/bench_policy.hpp"

namespace kvd {

namespace {

const std::string slice = KVD_SOURCE_DIR "/tests/data/conversation_slice.jsonl";

int run(const std::vector<std::string>& args) {
  return bench_policy(args);
}

}  // namespace

TEST_CASE("bench policy replays a trace as a table and as JSON") {
  CHECK(run({"--trace", slice, "--policies", "lru,default", "--measure", "both"}) == 0);
  CHECK(run({"--trace", slice, "--capacities", "0.5,30", "--json"}) == 0);
}

TEST_CASE("bench policy ends with status 2 when a trace is missing") {
  CHECK(run({"--trace", "/nonexistent.jsonl"}) == 2);
  CHECK(run({"--trace", slice, "--trace", "/nonexistent.jsonl", "--policies", "lru"}) == 2);
}

TEST_CASE("bench policy ends with status 2 for options it cannot follow") {
  CHECK(run({}) == 2);
  CHECK(run({"--trace", slice, "--policies", "clock"}) == 2);
  CHECK(run({"--trace", slice, "--policies", ""}) == 2);
  CHECK(run({"--trace", slice, "--capacities", "0"}) == 2);
  CHECK(run({"--trace", slice, "--capacities", "101"}) == 2);
  CHECK(run({"--trace", slice, "--capacities", "ten"}) == 2);
  CHECK(run({"--trace", slice, "--capacities", "nan"}) == 2);
  CHECK(run({"--trace", slice, "--measure", "suffix"}) == 2);
  CHECK(run({"--trace", slice, "--colour", "red"}) == 2);
  CHECK(run({"stray"}) == 2);
}

TEST_CASE("bench policy prints its options on request") {
  CHECK(run({"--help"}) == 0);
}

}  // namespace kvd
