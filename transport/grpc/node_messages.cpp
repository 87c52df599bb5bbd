#include "transport/grpc/node_messages.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace kvd {

namespace {

// Nodes that are tried for a block, one after the other.
constexpr std::size_t owners_max = 64;

}  // namespace

located_blocks read_located(const LocateResponse& answer, std::size_t asked) {
  located_blocks out;
  out.nodes.assign(answer.nodes().begin(), answer.nodes().end());
  std::uint64_t from = 0;
  for (const auto& run : answer.runs()) {
    if (run.first() < from || run.first() >= asked || run.count() == 0) continue;
    const auto count = std::min<std::uint64_t>(run.count(), asked - run.first());
    located_run found{run.first(), static_cast<std::uint32_t>(count), {}};
    for (const auto owner : run.owners())
      if (owner < out.nodes.size() && found.owners.size() < owners_max)
        found.owners.push_back(owner);
    if (found.owners.empty()) continue;
    from = run.first() + count;
    out.runs.push_back(std::move(found));
  }
  return out;
}

located_blocks read_located(const pegaflow::QueryPrefixBlocksResponse& answer,
                            const std::string& self, std::size_t asked) {
  std::vector<std::pair<std::uint32_t, std::string>> nodes;
  const bool newer = answer.nodes().empty();
  for (const auto& each : newer ? answer.nodes_since_0_25() : answer.nodes()) {
    if (each.node() == self || each.prefix_len() == 0) continue;
    const auto length = std::min<std::uint64_t>(each.prefix_len(), asked);
    nodes.emplace_back(static_cast<std::uint32_t>(length), each.node());
  }
  std::sort(nodes.begin(), nodes.end(), std::greater<>());
  located_blocks out;
  std::vector<std::uint32_t> ends;
  for (auto& [length, node] : nodes) {
    out.nodes.push_back(std::move(node));
    ends.push_back(length);
  }
  std::uint32_t from = 0;
  for (auto left = ends.size(); left > 0; --left) {
    const auto end = ends[left - 1];  // the shortest of those that still hold `from`
    if (end == from) continue;
    located_run found{from, end - from, {}};
    for (std::uint32_t owner = 0; owner < std::min(left, owners_max); ++owner)
      found.owners.push_back(owner);
    out.runs.push_back(std::move(found));
    from = end;
  }
  return out;
}

result<peer_lock> read_lock(LockResponse&& answer, std::size_t asked) {
  const auto broken = [](std::string_view why) {
    return fail(errc::internal, fmt::format("Lock was answered with {}", why));
  };
  peer_lock out;
  out.session = std::move(*answer.mutable_session_id());
  out.timeout = std::chrono::milliseconds(answer.lock_timeout_ms());
  out.positions.assign(answer.positions().begin(), answer.positions().end());
  std::uint64_t next = 0;
  for (const auto position : out.positions) {
    if (position < next || position >= asked) return broken("positions out of order");
    next = std::uint64_t{position} + 1;
  }
  if (out.positions.empty() != answer.steps().empty() ||
      (!out.positions.empty() &&
       static_cast<std::size_t>(answer.steps_size()) % out.positions.size() != 0)) {
    return broken("another number of parts than of blocks");
  }
  out.units.reserve(static_cast<std::size_t>(answer.steps_size()));
  std::int64_t unit = 0;
  for (const auto step : answer.steps()) {
    constexpr std::int64_t unit_max = std::numeric_limits<std::uint32_t>::max();
    if (step < -unit_max || step > unit_max) return broken("a place outside of any pool");
    unit += step;
    if (unit < 0 || unit > unit_max) return broken("a place outside of any pool");
    out.units.push_back(static_cast<std::uint32_t>(unit));
  }
  return out;
}

}  // namespace kvd
