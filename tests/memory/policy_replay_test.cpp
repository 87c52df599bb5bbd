#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "memory/policy_replay.hpp"

namespace kvd {

namespace {

std::uint64_t hits(const block_trace& trace, const char* policy_name, double percent,
                   hit_measure measure) {
  const auto policy = make_eviction_policy(policy_name);
  REQUIRE(policy.has_value());
  const fake_clock time;
  const auto outcome = replay(trace, **policy, trace.capacity_at(percent), measure, time);
  CHECK(outcome.references == trace.references.size());
  CHECK(outcome.policy_bytes > 0);
  return outcome.hits;
}

result<block_trace> parse(const std::string& text) {
  std::istringstream in(text);
  return parse_block_trace(in);
}

// The public traces are too large for the repository.
std::optional<block_trace> full_trace(const std::string& file) {
  const auto* folder = std::getenv("KVD_TRACE_DIR");
  const auto path =
      std::filesystem::path(folder != nullptr ? folder : KVD_SOURCE_DIR "/../shared/data") / file;
  if (!std::filesystem::exists(path)) {
    MESSAGE("left out, set KVD_TRACE_DIR: no " << path.string());
    return std::nullopt;
  }
  auto trace = read_block_trace(path.string());
  REQUIRE(trace.has_value());
  return std::move(*trace);
}

struct expected_row {
  const char* policy;
  hit_measure measure;
  std::array<std::uint64_t, 5> hits;  // at 1, 5, 10, 30, 100 %
};

constexpr std::array<double, 5> percents{1, 5, 10, 30, 100};

void check_rows(const block_trace& trace, const std::vector<expected_row>& rows) {
  for (const auto& row : rows) {
    for (std::size_t at = 0; at < percents.size(); ++at) {
      CAPTURE(row.policy);
      CAPTURE(percents[at]);
      CHECK(hits(trace, row.policy, percents[at], row.measure) == row.hits[at]);
    }
  }
}

// What the default is chosen by: prefix hits against LRU and ARC.
void check_default(const block_trace& trace) {
  const auto half_a_point = trace.references.size() / 200;
  for (const auto percent : percents) {
    CAPTURE(percent);
    const auto ours = hits(trace, "", percent, hit_measure::prefix);
    CHECK(ours >= hits(trace, "lru", percent, hit_measure::prefix));
    if (percent == 5 || percent == 10) {
      CHECK(ours + half_a_point >= hits(trace, "arc", percent, hit_measure::prefix));
    }
  }
}

}  // namespace

// The figures below were computed with the reference simulator, policy_sim.py.
TEST_CASE("the slice of the conversation trace gives the reference hits") {
  const auto trace = read_block_trace(KVD_SOURCE_DIR "/tests/data/conversation_slice.jsonl");
  REQUIRE(trace.has_value());
  CHECK(trace->request_ends.size() == 400);
  CHECK(trace->references.size() == 11'349);
  CHECK(trace->distinct() == 9'821);
  CHECK(trace->bad_lines == 0);
  struct point {
    double percent;
    std::array<std::uint64_t, 6> hits;  // lru, arc, s3fifo, each by block and by prefix
  };
  const std::vector<point> points{
      {0.1, {129, 399, 396, 399, 398, 399}},      {1, {380, 399, 399, 399, 399, 399}},
      {10, {399, 399, 399, 399, 399, 399}},       {30, {467, 467, 471, 471, 467, 467}},
      {50, {655, 655, 655, 655, 668, 668}},       {70, {1103, 1103, 1103, 1103, 1171, 1171}},
      {100, {1528, 1528, 1528, 1528, 1528, 1528}}};
  const std::array<const char*, 3> policies{"lru", "arc", "s3fifo"};
  for (const auto& each : points) {
    for (std::size_t at = 0; at < each.hits.size(); ++at) {
      CAPTURE(each.percent);
      CAPTURE(policies[at / 2]);
      const auto measure = at % 2 == 0 ? hit_measure::block : hit_measure::prefix;
      CHECK(hits(*trace, policies[at / 2], each.percent, measure) == each.hits[at]);
    }
  }
}

TEST_CASE("the conversation trace gives the reference hits of LRU") {
  const auto trace = full_trace("conversation_trace.jsonl");
  if (!trace) return;
  check_rows(*trace, {{"lru", hit_measure::block, {15'080, 56'382, 80'323, 103'205, 105'710}},
                      {"lru", hit_measure::prefix, {15'138, 56'483, 80'466, 103'205, 105'710}}});
}

TEST_CASE("the synthetic trace gives the reference hits of LRU") {
  const auto trace = full_trace("synthetic_trace.jsonl");
  if (!trace) return;
  check_rows(*trace, {{"lru", hit_measure::block, {4'184, 18'861, 31'668, 59'431, 77'953}},
                      {"lru", hit_measure::prefix, {4'644, 19'087, 31'973, 59'456, 77'953}}});
}

TEST_CASE("the default is at least LRU and near ARC on the conversation trace") {
  if (const auto trace = full_trace("conversation_trace.jsonl")) check_default(*trace);
}

TEST_CASE("the default is at least LRU and near ARC on the synthetic trace") {
  if (const auto trace = full_trace("synthetic_trace.jsonl")) check_default(*trace);
}

TEST_CASE("bad lines are counted and the first ones named") {
  const auto trace = parse("{\"hash_ids\": [1, 2]}\n"
                           "not json\n"
                           "{\"input_length\": 3}\n"
                           "{\"hash_ids\": [1, \"x\"]}\n"
                           "\n\n\n\n"
                           "{\"hash_ids\": [1, 3]}");
  REQUIRE(trace.has_value());
  CHECK(trace->request_ends == std::vector<std::size_t>{2, 4});
  CHECK(trace->references == std::vector<std::uint32_t>{0, 1, 0, 2});
  CHECK(trace->bad_lines == 7);
  REQUIRE(trace->bad_lines_named.size() == trace_bad_lines_named_max);
  CHECK(trace->bad_lines_named[0].find("line 2: not JSON") == 0);
  CHECK(trace->bad_lines_named[1] == "line 3: no array \"hash_ids\"");
  CHECK(trace->bad_lines_named[2] == "line 4: \"hash_ids\"[1] is no 64-bit integer");
}

TEST_CASE("a trace without one good request is refused and says why") {
  const auto trace = parse("[]\n");
  REQUIRE_FALSE(trace.has_value());
  CHECK(trace.error().code == errc::invalid_argument);
  CHECK(trace.error().detail.find("1 bad lines; line 1: no array") != std::string::npos);
  CHECK_FALSE(parse("").has_value());
  CHECK_FALSE(parse("{\"hash_ids\": []}").has_value());
}

TEST_CASE("a deeply nested line is a bad line") {
  const auto trace = parse(std::string(100'000, '[') + "\n{\"hash_ids\": [1]}");
  REQUIRE(trace.has_value());
  CHECK(trace->bad_lines == 1);
}

TEST_CASE("ids may use all 64 bits, signed or not") {
  const auto trace = parse("{\"hash_ids\": [18446744073709551615, 9223372036854775807, 0, -5]}");
  REQUIRE(trace.has_value());
  CHECK(trace->distinct() == 4);
}

TEST_CASE("a line above the limit is refused by its number") {
  const auto trace = parse("{\"hash_ids\": [1]}\n" + std::string(trace_line_bytes_max + 1, ' '));
  REQUIRE_FALSE(trace.has_value());
  CHECK(trace.error().code == errc::limit_exceeded);
  CHECK(trace.error().detail.find("line 2") == 0);
}

TEST_CASE("a missing trace is not found, by name") {
  const auto trace = read_block_trace("/nonexistent/trace.jsonl");
  REQUIRE_FALSE(trace.has_value());
  CHECK(trace.error().code == errc::not_found);
  CHECK(trace.error().detail.find("/nonexistent/trace.jsonl") != std::string::npos);
}

TEST_CASE("a folder is no trace") {
  CHECK_FALSE(read_block_trace("/").has_value());
}

TEST_CASE("capacities are rounded half to even and never 0") {
  block_trace trace;
  trace.fingerprints.resize(50);
  CHECK(trace.capacity_at(1) == 1);  // 0.5 rounds to 0, and one is the least
  CHECK(trace.capacity_at(5) == 2);  // 2.5
  CHECK(trace.capacity_at(7) == 4);  // 3.5
  CHECK(trace.capacity_at(100) == 50);
}

TEST_CASE("only the unbroken leading run counts as prefix hits") {
  // The middle block of the second request is new, so its last block cannot be used.
  const auto trace = parse("{\"hash_ids\": [1, 2, 3]}\n{\"hash_ids\": [1, 9, 3]}");
  REQUIRE(trace.has_value());
  CHECK(hits(*trace, "lru", 100, hit_measure::prefix) == 1);
  CHECK(hits(*trace, "lru", 100, hit_measure::block) == 2);
}

}  // namespace kvd
