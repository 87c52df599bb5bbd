// Mending what a metaserver knows: looking through the store, and telling whole buckets.

#include <algorithm>
#include <iterator>

#include "transport/directory/announcer.hpp"

namespace kvd {

void announcer::begin_walk(walk begun) {
  if (begun.recount) {
    // It starts from nothing, and what others looked for is of no use to them now.
    for (auto& each : walks_)
      if (!each.recount) directories_[each.directory].calling = false;
    walks_.clear();
  }
  walks_.push_back(std::move(begun));
  if (!std::exchange(stepping_, true)) post_([this] { step_walk(); });
}

void announcer::step_walk() {
  stepping_ = false;
  if (walks_.empty()) return;
  auto& now = walks_.front();
  now.at = store_.for_each_sealed(now.at, options_.records_per_step,
                                  [&](scope_id in, std::string_view hash) {
                                    const auto key = names_.key_of(in, hash);
                                    if (now.recount) {
                                      if (announced_.insert(key).second) digest_.add(key);
                                      return;
                                    }
                                    const auto bucket = directory_digest::bucket_of(key);
                                    if (now.wanted.test(bucket))
                                      now.found[bucket].emplace_back(in, std::string(hash));
                                  });
  const bool ended = now.at == 0;
  walk over;
  if (ended) {
    over = std::move(now);
    walks_.pop_front();
  }
  if (!walks_.empty() && !std::exchange(stepping_, true)) post_([this] { step_walk(); });
  if (!ended) return;
  if (!over.recount) {
    send_mended(over.directory, std::make_shared<std::deque<mending>>(calls_of(over)));
    return;
  }
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    directories_[i].compare_at = clock_.now();
    pump(i);
  }
  publish();
}

// As many of the buckets as one look through the store should collect.
void announcer::mend_next(std::size_t which) {
  auto& to = directories_[which];
  const auto per_bucket = announced_.size() / directory_digest::bucket_count + 1;
  const auto count = std::min(to.differing.size(),
                              std::max<std::size_t>(1, options_.blocks_per_walk / per_bucket));
  walk wanted{.directory = which};
  for (std::size_t i = 0; i < count; ++i) {
    const auto bucket = to.differing.back() % directory_digest::bucket_count;
    wanted.wanted.set(bucket);
    wanted.found[bucket];  // an empty one is told, too
    to.differing.pop_back();
  }
  to.calling = true;
  begin_walk(std::move(wanted));
}

std::deque<announcer::mending> announcer::calls_of(walk& over) {
  std::deque<mending> calls;
  std::vector<scoped_hash> blocks;
  std::vector<std::uint32_t> buckets;
  const auto finish = [&] {
    if (!buckets.empty()) calls.push_back({std::move(buckets), by_name(blocks)});
    buckets.clear();
    blocks.clear();
  };
  for (auto& [bucket, found] : over.found) {
    if (blocks.size() + found.size() > options_.blocks_per_call) finish();
    buckets.push_back(bucket);
    std::move(found.begin(), found.end(), std::back_inserter(blocks));
  }
  finish();
  return calls;
}

std::vector<named_blocks> announcer::by_name(std::vector<scoped_hash>& blocks) {
  std::map<scope_id, named_blocks> sorted;
  for (auto& [in, hash] : blocks) {
    auto& of = sorted[in];
    if (of.name.empty()) of.name = names_.name_of(in);
    of.hashes.push_back(std::move(hash));
  }
  std::vector<named_blocks> out;
  for (auto& each : sorted)
    out.push_back(std::move(each.second));
  return out;
}

void announcer::send_mended(std::size_t which, const std::shared_ptr<std::deque<mending>>& left) {
  auto& to = directories_[which];
  if (left->empty() || !to.up) {
    to.calling = false;
    if (to.compares)
      to.compare_at = std::min(to.compare_at, clock_.now() + std::chrono::seconds(1));
    pump(which);
    publish();
    return;
  }
  const auto over = [this, which, left](const error* why, std::size_t count) {
    if (why == nullptr) {
      metrics_.inserts.blocks.add(count);
    } else {
      metrics_.inserts.failures.add();
      failed(which, *why);
      left->clear();
    }
    send_mended(which, left);
  };
  auto& next = left->front();
  if (to.compares) {
    std::size_t count = 0;
    for (const auto& each : next.blocks)
      count += each.hashes.size();
    auto buckets = std::move(next.buckets);
    auto blocks = std::move(next.blocks);
    left->pop_front();
    to.link->replace(std::move(buckets), std::move(blocks),
                     [this, over, count](result<void> outcome) {
                       post_([over, count, outcome = std::move(outcome)] {
                         over(outcome ? nullptr : &outcome.error(), count);
                       });
                     });
    return;
  }
  if (next.blocks.empty()) {
    left->pop_front();
    send_mended(which, left);
    return;
  }
  auto blocks = std::move(next.blocks.back());
  next.blocks.pop_back();
  const auto count = blocks.hashes.size();
  to.link->insert(std::move(blocks), [this, over, count](result<std::vector<std::string>> outcome) {
    post_([over, count, outcome = std::move(outcome)] {
      over(outcome ? nullptr : &outcome.error(), count);
    });
  });
}

}  // namespace kvd
