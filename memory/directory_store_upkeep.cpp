// What is in no hurry: blocks of sessions that are gone, ages, redundancy.

#include <algorithm>

#include "memory/directory_store.hpp"

namespace kvd {

namespace {

// What looking at an empty list costs, in records.
constexpr std::uint32_t look_cost = 8;
// Chains that are counted under one lock.
constexpr std::uint32_t chains_a_hold = 64;

}  // namespace

bool directory_store::upkeep() {
  auto used = reclaim(records_a_slice);
  if (used > 0) return true;
  if (phase_ == sweep_phase::ages) used = sweep_ages(records_a_slice);
  if (used < records_a_slice && phase_ == sweep_phase::redundancy) {
    used += count_redundancy(records_a_slice);
  }
  return phase_ != sweep_phase::none;
}

std::uint32_t directory_store::reclaim(std::uint32_t budget) {
  std::uint32_t used = 0;
  std::uint64_t keys = 0;
  const auto end = sessions_.high_water();
  for (session_index looked = 0; looked < end && used < budget; ++looked) {
    if (reclaim_session_ >= end) reclaim_session_ = 0;
    const auto at = reclaim_session_;
    if (sessions_.idle(at)) {
      table_.clear_session(at);
      sessions_.free(at);
      silent_[at] = false;
    }
    while (sessions_.is_leaving(at) && sessions_.owners(at) > 0 && used < budget) {
      directory_table::dropped dropped;
      {
        const std::lock_guard lock(table_.lock_of_bucket(reclaim_bucket_));
        dropped = table_.drop_oldest(at, reclaim_bucket_, records_a_hold,
                                     [](const owner_record&) { return true; });
      }
      forget(at, dropped.owners);
      if (silent_[at]) keys += dropped.keys;
      used += std::max(dropped.owners, look_cost);
      if (dropped.owners == records_a_hold) continue;
      reclaim_bucket_ = (reclaim_bucket_ + 1) % directory_digest::bucket_count;
      // Once around, and some remain: a request is just counting them. Later.
      if (reclaim_bucket_ == 0) break;
    }
    if (used < budget) {
      ++reclaim_session_;
      reclaim_bucket_ = 0;
    }
  }
  if (keys > 0) {
    const std::lock_guard lock(swept_mutex_);
    swept_.swept_keys += keys;
  }
  return used;
}

void directory_store::begin_sweep() {
  if (phase_ != sweep_phase::none) return;
  phase_ = sweep_phase::ages;
  sweep_session_ = 0;
  sweep_bucket_ = 0;
  sweep_shard_ = 0;
  sweep_chain_ = 0;
  counting_ = {};
  counted_owners_ = 0;
  const auto gone = sessions_.leave_silent(options_.ttl);
  const std::lock_guard lock(swept_mutex_);
  for (const auto& each : gone) {
    silent_[each.at] = true;
    ++swept_.swept_nodes;
    swept_.swept_owners += each.owners;
  }
}

std::uint32_t directory_store::sweep_ages(std::uint32_t budget) {
  const auto ttl = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::seconds>(options_.ttl).count());
  const auto now = now_seconds();
  const auto old = [&](std::uint32_t since) { return now - since > ttl; };
  std::uint32_t used = 0;
  directory_table::dropped total;
  while (used < budget && sweep_session_ < sessions_.high_water()) {
    if (!sessions_.is_live(sweep_session_) || sweep_bucket_ == directory_digest::bucket_count) {
      ++sweep_session_;
      sweep_bucket_ = 0;
      continue;
    }
    directory_table::dropped dropped;
    {
      const std::lock_guard lock(table_.lock_of_bucket(sweep_bucket_));
      const auto confirmed = table_.confirmed(sweep_session_, sweep_bucket_);
      if (confirmed == 0 || old(confirmed)) {
        dropped = table_.drop_oldest(sweep_session_, sweep_bucket_, records_a_hold,
                                     [&](const owner_record& r) { return old(r.since); });
      }
    }
    forget(sweep_session_, dropped.owners);
    total.owners += dropped.owners;
    total.keys += dropped.keys;
    used += std::max(dropped.owners, look_cost);
    if (dropped.owners < records_a_hold) ++sweep_bucket_;
  }
  if (sweep_session_ >= sessions_.high_water()) phase_ = sweep_phase::redundancy;
  if (total.owners > 0) {
    const std::lock_guard lock(swept_mutex_);
    swept_.swept_owners += total.owners;
    swept_.swept_keys += total.keys;
  }
  return used;
}

std::uint32_t directory_store::count_redundancy(std::uint32_t budget) {
  const auto now = clock_.now();
  std::uint32_t used = 0;
  while (used < budget && sweep_shard_ < directory_table::shard_count) {
    const auto bucket = sweep_shard_ * directory_table::buckets_per_shard;
    const std::lock_guard lock(table_.lock_of_bucket(bucket));
    const auto chains = table_.chains(sweep_shard_);
    const auto end = std::min(chains, sweep_chain_ + chains_a_hold);
    for (; sweep_chain_ < end; ++sweep_chain_) {
      table_.for_keys_of_chain(sweep_shard_, sweep_chain_, [&](const directory_key& key) {
        std::uint64_t visible = 0;
        table_.for_owners(
            key, [&](session_index owner) { visible += sessions_.visible(owner, now) ? 1 : 0; });
        if (visible == 0) return;
        ++counting_[std::min<std::uint64_t>(visible, counting_.size()) - 1];
        counted_owners_ += visible;
      });
    }
    used += chains_a_hold;
    if (sweep_chain_ < chains) continue;
    ++sweep_shard_;
    sweep_chain_ = 0;
  }
  if (sweep_shard_ == directory_table::shard_count) end_sweep();
  return used;
}

void directory_store::end_sweep() {
  phase_ = sweep_phase::none;
  std::uint64_t keys = 0;
  for (const auto each : counting_)
    keys += each;
  const std::lock_guard lock(swept_mutex_);
  swept_.redundancy = counting_;
  swept_.redundancy_mean =
      keys == 0 ? 0 : static_cast<double>(counted_owners_) / static_cast<double>(keys);
  ++swept_.sweeps;
}

result<purged_nodes> directory_store::purge_stale() {
  purged_nodes out;
  for (auto& each : sessions_.leave_silent(options_.stale_after)) {
    out.nodes.push_back(std::move(each.node));
    out.owners += each.owners;
  }
  return out;
}

directory_usage directory_store::usage() const {
  directory_usage out;
  {
    const std::lock_guard lock(swept_mutex_);
    out = swept_;
  }
  out.keys = table_.keys();
  out.owners = table_.owners();
  out.owners_max = table_.owners_max();
  out.memory_bytes =
      table_.memory_bytes() + sessions_.high_water() * directory_table::bytes_of_session();
  out.refused_owners = refused_.load(std::memory_order_relaxed);
  const auto nodes = sessions_.count();
  out.nodes_fresh = nodes[static_cast<std::size_t>(node_state::fresh)];
  out.nodes_stale = nodes[static_cast<std::size_t>(node_state::stale)];
  out.nodes_leaving = nodes[static_cast<std::size_t>(node_state::leaving)];
  return out;
}

}  // namespace kvd
