#pragma once
// Replays a trace of prompts against an eviction policy and counts hits.
//
// A trace is a file of JSON lines in Mooncake's format; of each line only `hash_ids` matters: one
// integer a block of the prompt, root first, equal ids meaning equal prefixes.
//
// One thread; nothing here is on a data path.

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "memory/eviction_policy.hpp"

namespace kvd {

// Bounds of a trace: a prompt of a million tokens is one line of 0.5 MiB.
inline constexpr std::size_t trace_line_bytes_max = 16U << 20;
inline constexpr std::size_t trace_references_max = 1U << 30;
// So many bad lines are named; the rest are only counted.
inline constexpr std::size_t trace_bad_lines_named_max = 5;

struct block_trace {
  std::vector<std::uint32_t> references;    // request after request; ids renumbered from 0
  std::vector<std::size_t> request_ends;    // one past each request's last reference
  std::vector<std::uint64_t> fingerprints;  // of each distinct id
  std::uint64_t bad_lines = 0;
  std::vector<std::string> bad_lines_named;  // "line 7: ..."

  std::uint32_t distinct() const noexcept {
    return static_cast<std::uint32_t>(fingerprints.size());
  }
  // The hit ratio of a cache that never has to evict.
  double ceiling() const noexcept;
  // `percent` of the distinct blocks, rounded half to even, at least one.
  std::uint32_t capacity_at(double percent) const noexcept;
};

// Lines that are not JSON or have no `hash_ids` of integers are counted and left out.
// invalid_argument when no request is left, limit_exceeded when the trace is too long.
result<block_trace> parse_block_trace(std::istream& in);
// Also not_found and io, with the path.
result<block_trace> read_block_trace(const std::string& path);

enum class hit_measure : std::uint8_t {
  block,   // every reference is looked up, then touched or inserted at once, in prompt order
  prefix,  // a request is looked up as a whole and only its unbroken leading run counts; then all
           // its blocks are touched or inserted, leaf first. What an engine can use.
};

struct replay_outcome {
  std::uint64_t hits = 0;
  std::uint64_t references = 0;
  std::size_t policy_bytes = 0;
  duration elapsed{0};

  double hit_ratio() const noexcept;
  double ns_per_reference() const noexcept;
};

// REQUIRES: `policy` is fresh, capacity > 0.
replay_outcome replay(const block_trace& trace, eviction_policy& policy, std::uint32_t capacity,
                      hit_measure measure, const clock& time);

}  // namespace kvd
