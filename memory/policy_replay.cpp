#include "memory/policy_replay.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <fstream>
#include <unordered_map>

#include <boost/json.hpp>
#include <fmt/format.h>

namespace kvd {

namespace {

// Any 64-bit mixer will do: ids are small integers, fingerprints look random (splitmix64's).
std::uint64_t fingerprint_of(std::int64_t id) noexcept {
  auto bits = static_cast<std::uint64_t>(id) + 0x9E3779B97F4A7C15ULL;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBULL;
  return bits ^ (bits >> 31);
}

result<std::vector<std::int64_t>> ids_of(const std::string& line) {
  boost::system::error_code broken;
  const auto value = boost::json::parse(line, broken);
  if (broken) return fail(errc::invalid_argument, "not JSON: " + broken.message());
  const auto* request = value.if_object();
  const auto* field = request != nullptr ? request->if_contains("hash_ids") : nullptr;
  const auto* items = field != nullptr ? field->if_array() : nullptr;
  if (items == nullptr) return fail(errc::invalid_argument, "no array \"hash_ids\"");
  std::vector<std::int64_t> ids;
  ids.reserve(items->size());
  for (const auto& item : *items) {
    if (const auto* id = item.if_int64()) {
      ids.push_back(*id);
    } else if (const auto* big = item.if_uint64()) {
      ids.push_back(static_cast<std::int64_t>(*big));
    } else {
      return fail(errc::invalid_argument,
                  fmt::format("\"hash_ids\"[{}] is no 64-bit integer", ids.size()));
    }
  }
  return ids;
}

class trace_builder {
public:
  void bad(std::uint64_t line_number, const std::string& why) {
    ++trace_.bad_lines;
    if (trace_.bad_lines_named.size() < trace_bad_lines_named_max) {
      trace_.bad_lines_named.push_back(fmt::format("line {}: {}", line_number, why));
    }
  }
  void add(const std::vector<std::int64_t>& ids) {
    for (const auto id : ids) {
      const auto number = static_cast<std::uint32_t>(trace_.fingerprints.size());
      const auto [known, is_new] = numbers_.try_emplace(id, number);
      if (is_new) trace_.fingerprints.push_back(fingerprint_of(id));
      trace_.references.push_back(known->second);
    }
    trace_.request_ends.push_back(trace_.references.size());
  }
  block_trace& trace() noexcept { return trace_; }

private:
  block_trace trace_;
  std::unordered_map<std::int64_t, std::uint32_t> numbers_;
};

// A small stand-in for the block index: which block number holds which id.
class replay_index final : public evictable {
public:
  replay_index(const block_trace& trace, eviction_policy& policy, std::uint32_t capacity)
      : trace_(trace), policy_(policy), capacity_(capacity), blocks_(trace.distinct(), no_block),
        ids_(capacity) {
    policy_.reserve(capacity, capacity);
  }

  bool operator()(block_index) noexcept override { return true; }
  std::uint64_t fingerprint(block_index resident) const noexcept override {
    return trace_.fingerprints[ids_[resident]];
  }
  bool has(std::uint32_t id) const noexcept { return blocks_[id] != no_block; }

  bool full() const noexcept { return used_ == capacity_; }

  void touch(std::uint32_t id) noexcept { policy_.touch(blocks_[id], trace_.fingerprints[id]); }
  bool admit(std::uint32_t id) noexcept { return policy_.admit(trace_.fingerprints[id]); }
  // REQUIRES: `id` is not in; when full, the policy admitted it.
  void insert(std::uint32_t id) noexcept {
    auto block = used_;
    if (full()) {
      block = policy_.evict(*this);
      blocks_[ids_[block]] = no_block;
    } else {
      ++used_;
    }
    ids_[block] = id;
    blocks_[id] = block;
    policy_.insert(block, trace_.fingerprints[id]);
  }

private:
  const block_trace& trace_;
  eviction_policy& policy_;
  std::uint32_t capacity_;
  std::uint32_t used_ = 0;
  std::vector<block_index> blocks_;  // by id
  std::vector<std::uint32_t> ids_;   // by block
};

std::uint64_t replay_blocks(const block_trace& trace, replay_index& index) {
  std::uint64_t hits = 0;
  for (const auto id : trace.references) {
    if (index.has(id)) {
      ++hits;
      index.touch(id);
    } else if (!index.full() || index.admit(id)) {
      index.insert(id);
    }
  }
  return hits;
}

std::uint64_t replay_prefixes(const block_trace& trace, replay_index& index) {
  std::uint64_t hits = 0;
  std::size_t begin = 0;
  for (const auto end : trace.request_ends) {
    for (auto at = begin; at < end && index.has(trace.references[at]); ++at)
      ++hits;
    auto let_in = false;
    for (auto at = end; at > begin; --at) {
      const auto id = trace.references[at - 1];
      if (index.has(id)) {
        index.touch(id);
        continue;
      }
      // Asked even when the answer is known, so that ARC learns who needs the room.
      if (!index.full() || index.admit(id)) let_in = true;
      if (let_in) index.insert(id);
    }
    begin = end;
  }
  return hits;
}

result<block_trace> parse_lines(std::istream& in) {
  trace_builder builder;
  std::string line;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    if (line.size() > trace_line_bytes_max) {
      return fail(errc::limit_exceeded, fmt::format("line {} has {} bytes, at most {} are read",
                                                    number, line.size(), trace_line_bytes_max));
    }
    const auto ids = ids_of(line);
    if (!ids) {
      builder.bad(number, ids.error().detail);
      continue;
    }
    if (builder.trace().references.size() + ids->size() > trace_references_max) {
      return fail(errc::limit_exceeded, fmt::format("more than {} block references at line {}",
                                                    trace_references_max, number));
    }
    builder.add(*ids);
  }
  if (in.bad()) return fail(errc::io, "reading stopped early");
  if (builder.trace().references.empty()) {
    const auto& named = builder.trace().bad_lines_named;
    return fail(errc::invalid_argument,
                fmt::format("no request with hash_ids among {} bad lines{}{}",
                            builder.trace().bad_lines, named.empty() ? "" : "; ",
                            named.empty() ? "" : named.front()));
  }
  return std::move(builder.trace());
}

}  // namespace

double block_trace::ceiling() const noexcept {
  if (references.empty()) return 0;
  return 1.0 - static_cast<double>(distinct()) / static_cast<double>(references.size());
}

std::uint32_t block_trace::capacity_at(double percent) const noexcept {
  const auto exact = static_cast<double>(distinct()) * percent / 100;
  return static_cast<std::uint32_t>(std::max(1.0, std::nearbyint(exact)));
}

result<block_trace> parse_block_trace(std::istream& in) {
  try {
    return parse_lines(in);
  } catch (const std::exception& problem) {
    return fail(errc::limit_exceeded, fmt::format("trace does not fit: {}", problem.what()));
  }
}

result<block_trace> read_block_trace(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    const auto code = errno == ENOENT ? errc::not_found : errc::io;
    return fail(code, fmt::format("cannot open trace {}: {}", path, std::strerror(errno)));
  }
  auto trace = parse_block_trace(in);
  if (!trace) return fail(trace.error().code, path + ": " + trace.error().detail);
  return trace;
}

double replay_outcome::hit_ratio() const noexcept {
  return references == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(references);
}

double replay_outcome::ns_per_reference() const noexcept {
  if (references == 0) return 0;
  const std::chrono::duration<double, std::nano> nanoseconds = elapsed;
  return nanoseconds.count() / static_cast<double>(references);
}

replay_outcome replay(const block_trace& trace, eviction_policy& policy, std::uint32_t capacity,
                      hit_measure measure, const clock& time) {
  replay_index index(trace, policy, capacity);
  const auto start = time.now();
  const auto hits =
      measure == hit_measure::block ? replay_blocks(trace, index) : replay_prefixes(trace, index);
  return {hits, trace.references.size(), policy.memory_bytes(), time.now() - start};
}

}  // namespace kvd
