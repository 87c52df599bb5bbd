#include "transport/engine/query_path.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.hpp"
#include "transport/engine/hashes.hpp"

namespace kvd {

namespace {

// Scratch of a look-up: one a thread, so that a warmed-up thread does not allocate.
struct scratch {
  std::vector<block_index> blocks;
  std::vector<std::uint32_t> positions;
};

scratch& scratch_of_thread() {
  thread_local scratch mine;
  return mine;
}

scratch& empty_scratch() {
  auto& mine = scratch_of_thread();
  mine.blocks.clear();
  mine.positions.clear();
  return mine;
}

}  // namespace

result<void> query_path::query(const instance& of, const pegaflow::QueryRequest& request,
                               pegaflow::QueryResponse& answer) {
  if (request.req_id().empty()) return fail(errc::invalid_argument, "req_id is empty");
  if (auto hashes = check_hashes(request.block_hashes()); !hashes) return hashes;
  if (request.group_id() == 0 && !of.sealed) {
    // Its layout is not known before the last worker is here, and a miss is always legal.
    answer.mutable_ready();
    return {};
  }
  if (auto sealed = of.require_sealed(); !sealed) return sealed;
  if (request.group_id() >= of.scopes.size()) {
    return fail(errc::invalid_argument,
                fmt::format("group_id {} is unknown: instance {} has {} groups", request.group_id(),
                            of.id, of.scopes.size()));
  }
  if (request.group_id() == 0 || request.wait_for_full_prefix()) return prefix(of, request, answer);
  return members(of, request, *answer.mutable_ready());
}

result<void> query_path::prefix(const instance& of, const pegaflow::QueryRequest& request,
                                pegaflow::QueryResponse& answer) {
  const auto hashes = as_hash_list(request.block_hashes());
  const auto in = of.scopes[request.group_id()];
  const query_id id{of.serial, request.req_id(), request.group_id()};
  const auto fetch = below_ == nullptr ? lower_tier::progress::none : below_->poll(id);
  if (fetch == lower_tier::progress::loading) {
    answer.mutable_loading();
    return {};
  }
  auto& mine = empty_scratch();
  const auto hits = store_.pin_prefix(in, hashes, mine.blocks);
  if (fetch == lower_tier::progress::none && below_ != nullptr && hits < hashes.size() &&
      below_->fetch(id, in, hashes, mine.blocks, request.wait_for_full_prefix())) {
    answer.mutable_loading();
    return {};
  }
  brought_up fetched;
  if (fetch == lower_tier::progress::over) fetched = below_->settle(id);
  // What came up behind a gap is no hit.
  fetched.ssd = std::min(fetched.ssd, hits);
  fetched.peers = std::min(fetched.peers, hits - fetched.ssd);
  return ready(of, request, hits, fetched, *answer.mutable_ready());
}

// Leases the `hits` blocks that this thread has pinned, `fetched` of them from below.
result<void> query_path::ready(const instance& of, const pegaflow::QueryRequest& request,
                               std::size_t hits, brought_up fetched, pegaflow::QueryReady& answer) {
  const auto hashes = as_hash_list(request.block_hashes());
  const auto in = of.scopes[request.group_id()];
  auto& mine = scratch_of_thread();
  const bool exact = request.group_id() != 0;
  store_.count_lookup(in, hashes.size(), hits, fetched);
  if (!exact) {
    if (observer_ != nullptr) observer_->looked_up(of.namespace_name, hashes, hits);
    of.life->blocks_asked.add(hashes.size());
    of.life->foreign_hits.add(store_.count_foreign(mine.blocks, origin_of(of)));
  }
  if (exact && hits < hashes.size()) {
    // An exact set is all or nothing: report what is there, lease nothing.
    store_.unpin(mine.blocks);
  } else if (!lease(of, in, mine.blocks, answer)) {
    return {};
  }
  answer.set_num_hit_blocks(hits);
  if (exact) {
    for (std::uint32_t i = 0; i < hits; ++i)
      answer.add_hit_positions(i);
  }
  return {};
}

result<void> query_path::members(const instance& of, const pegaflow::QueryRequest& request,
                                 pegaflow::QueryReady& answer) {
  const auto hashes = as_hash_list(request.block_hashes());
  const auto in = of.scopes[request.group_id()];
  auto& mine = empty_scratch();
  const auto hits = store_.pin_members(in, hashes, mine.blocks, mine.positions);
  if (!lease(of, in, mine.blocks, answer)) return {};
  answer.set_num_hit_blocks(hits);
  for (const auto position : mine.positions)
    answer.add_hit_positions(position);
  return {};
}

// Leases pinned blocks. When the table is full the answer stays a miss, which is always legal, and
// the pins are given back.
bool query_path::lease(const instance& of, scope_id in, std::span<const block_index> blocks,
                       pegaflow::QueryReady& answer) {
  if (blocks.empty()) return true;
  const auto granted = leases_.grant(of.serial, in, of.world_size, blocks);
  if (granted) {
    answer.mutable_lease()->assign(granted->data(), granted->size());
    return true;
  }
  log::warn("query", "answered a miss: {} instance={}", granted.error().detail, of.id);
  store_.unpin(blocks);
  return false;
}

}  // namespace kvd
