#include "transport/directory/announcer.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/log.hpp"

namespace kvd {

namespace {

// Events taken from the feed at once, so that its lock is held shortly.
constexpr std::size_t events_per_take = 4096;
// A metaserver that is full is asked again so many comparisons later.
constexpr int full_patience = 10;

}  // namespace

announcer::announcer(const announcer_options& how,
                     std::vector<std::unique_ptr<directory_link>> links, const block_store& store,
                     residency_feed& feed, const clock& time, sharing_metrics& metrics,
                     std::function<void(task)> post)
    : options_(how), store_(store), feed_(feed), clock_(time), metrics_(metrics),
      post_(std::move(post)), names_(store), directories_(links.size()) {
  for (std::size_t i = 0; i < links.size(); ++i)
    directories_[i].link = std::move(links[i]);
  publish();
}

// Up, and no earlier one is the same directory.
bool announcer::active(std::size_t which) const {
  const auto& one = directories_[which];
  if (!one.up) return false;
  const auto same = [&](const told_directory& other) {
    return other.up && !one.id.empty() && other.id == one.id;
  };
  const auto end = directories_.begin() + static_cast<std::ptrdiff_t>(which);
  return std::find_if(directories_.begin(), end, same) == end;
}

void announcer::publish() {
  std::vector<report> now;
  std::size_t up = 0;
  std::size_t queued = 0;
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    const auto& one = directories_[i];
    now.push_back({.address = one.link->address(),
                   .directory_id = one.id,
                   .up = one.up,
                   .spare = one.up && !active(i),
                   .trouble = one.trouble,
                   .queued = one.queue.size(),
                   .mended = one.mended});
    up += one.up ? 1 : 0;
    queued += one.queue.size();
  }
  metrics_.directories_up.set(static_cast<std::int64_t>(up));
  metrics_.queued_blocks.set(static_cast<std::int64_t>(queued));
  metrics_.announced_blocks.set(static_cast<std::int64_t>(announced_.size()));
  const std::lock_guard lock(mutex_);
  reports_ = std::move(now);
  up_count_.store(up);
}

std::vector<announcer::report> announcer::status() const {
  const std::lock_guard lock(mutex_);
  return reports_;
}

bool announcer::settled() const {
  if (!walks_.empty() || !feed_.empty()) return false;
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    const auto& one = directories_[i];
    if (!active(i)) continue;
    if (one.calling || one.behind || !one.queue.empty() || !one.differing.empty()) return false;
  }
  return true;
}

// -- what is announced ---------------------------------------------------------------------------

void announcer::drain() {
  bool more = true;
  while (more) {
    events_.clear();
    if (feed_.take(events_, events_per_take)) {
      metrics_.feed_lost.add();
      log::warn("registrar", "announcements were lost: the store is looked through");
      announced_.clear();
      digest_.clear();
      for (auto& each : directories_) {
        each.queue.clear();
        each.order.clear();
        each.behind = true;
      }
      begin_walk({.recount = true});
    }
    for (const auto& event : events_)
      apply(event);
    more = !feed_.empty();
  }
  for (std::size_t i = 0; i < directories_.size(); ++i)
    pump(i);
  publish();
}

void announcer::apply(const residency_event& event) {
  const auto key = names_.key_of(event.in, event.hash());
  if (event.resident) {
    if (!announced_.insert(key).second) return;
    digest_.add(key);
  } else {
    if (announced_.erase(key) == 0) return;
    digest_.remove(key);
  }
  for (std::size_t i = 0; i < directories_.size(); ++i)
    if (active(i)) enqueue(directories_[i], key, event);
}

void announcer::enqueue(told_directory& to, const directory_key& key,
                        const residency_event& event) {
  const auto at = to.queue.find(key);
  if (at != to.queue.end()) {
    at->second.resident = event.resident;
    return;
  }
  if (to.queue.size() >= options_.queue_blocks_max) {
    (event.resident ? metrics_.inserts : metrics_.removals).queue_full.add();
    to.behind = true;
    to.compare_at = std::min(to.compare_at, clock_.now() + options_.compare_period);
    return;
  }
  to.queue.emplace(key, waiting{event.in, event.resident, std::string(event.hash())});
  to.order.push_back(key);
}

// -- calls ---------------------------------------------------------------------------------------

void announcer::pump(std::size_t which) {
  auto& to = directories_[which];
  if (leaving_ || to.calling || !active(which)) return;
  // While something waits, some of the differences are none. They are looked at all the same when
  // there never is a quiet moment.
  const auto late = clock_.now() - to.compare_at;
  const bool due = late >= duration{} && (to.queue.empty() || late >= 4 * options_.compare_period);
  if (!to.differing.empty()) {
    mend_next(which);
  } else if (due && walks_.empty()) {
    compare(which);
  } else if (!to.queue.empty()) {
    send_waiting(which);
  }
}

// What waits longest decides what kind of call it is; all of that kind among the next ones go.
void announcer::send_waiting(std::size_t which) {
  auto& to = directories_[which];
  const auto& first = to.queue.at(to.order.front());
  named_blocks blocks{names_.name_of(first.in), {}};
  const auto in = first.in;
  const bool resident = first.resident;
  const auto window = std::min(to.order.size(), options_.blocks_per_call);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < window; ++i) {
    const auto key = to.order[i];
    auto at = to.queue.find(key);
    if (at->second.in != in || at->second.resident != resident) {
      to.order[kept++] = key;
      continue;
    }
    blocks.hashes.push_back(std::move(at->second.hash));
    to.queue.erase(at);
  }
  const auto begin = to.order.begin();
  to.order.erase(begin + static_cast<std::ptrdiff_t>(kept),
                 begin + static_cast<std::ptrdiff_t>(window));
  to.calling = true;
  const auto count = blocks.hashes.size();
  auto& counters = resident ? metrics_.inserts : metrics_.removals;
  const auto over = [this, which, count, &counters](const error* why) {
    directories_[which].calling = false;
    if (why == nullptr) {
      counters.blocks.add(count);
    } else {
      counters.failures.add();
      failed(which, *why);
    }
    pump(which);
    publish();
  };
  if (resident) {
    to.link->insert(std::move(blocks), [this, in, over](result<std::vector<std::string>> outcome) {
      post_([this, in, over, outcome = std::move(outcome)] {
        if (outcome && !outcome->empty() && hint_) hint_(in, *outcome);
        over(outcome ? nullptr : &outcome.error());
      });
    });
  } else {
    to.link->remove(std::move(blocks), [this, over](result<void> outcome) {
      post_([over, outcome = std::move(outcome)] { over(outcome ? nullptr : &outcome.error()); });
    });
  }
}

void announcer::compare(std::size_t which) {
  auto& to = directories_[which];
  if (!to.compares) {
    // Everything again: it cannot say what it lacks.
    to.compare_at = clock_.now() + options_.retell_period;
    to.differing.resize(directory_digest::bucket_count);
    std::iota(to.differing.begin(), to.differing.end(), 0U);
    to.behind = false;
    pump(which);
    return;
  }
  to.calling = true;
  metrics_.comparisons.add();
  to.link->compare(digest_.buckets(), [this, which](result<std::vector<std::uint32_t>> outcome) {
    post_([this, which, outcome = std::move(outcome)] {
      auto& of = directories_[which];
      of.calling = false;
      of.compare_at = clock_.now() + options_.compare_period;
      if (outcome) {
        of.differing = *outcome;
        of.behind = false;
        of.mended += outcome->size();
        metrics_.buckets_mended.add(outcome->size());
      } else {
        failed(which, outcome.error());
      }
      pump(which);
      publish();
    });
  });
}

// What this says is not known any more; who it was told to may have to start over.
void announcer::failed(std::size_t which, const error& why) {
  auto& of = directories_[which];
  of.behind = true;
  of.differing.clear();
  if (of.trouble != why.detail) log::warn("registrar", "{}: {}", of.link->address(), why.detail);
  of.trouble = why.detail;
  switch (why.code) {
  case errc::limit_exceeded:
    of.compare_at = clock_.now() + options_.compare_period * full_patience;
    return;
  case errc::invalid_argument:
  case errc::internal: of.compare_at = clock_.now() + options_.compare_period; return;
  case errc::instance_missing:
    metrics_.session_resets.add();
    of.heartbeat_at = clock_.now();
    break;
  default: break;
  }
  of.up = false;
  of.queue.clear();
  of.order.clear();
}

void announcer::beat(std::size_t which) {
  auto& to = directories_[which];
  to.asking = true;
  to.link->heartbeat([this, which](result<std::chrono::seconds> outcome) {
    post_([this, which, outcome = std::move(outcome)] { beaten(which, outcome); });
  });
}

void announcer::beaten(std::size_t which, const result<std::chrono::seconds>& outcome) {
  auto& of = directories_[which];
  of.asking = false;
  if (outcome) {
    // Who answers now may be another one, of whom no call has failed yet.
    describe(which, *outcome);
    return;
  }
  metrics_.heartbeat_failures.add();
  of.heartbeat_at = clock_.now() + std::chrono::seconds(1);
  failed(which, outcome.error());
  for (std::size_t i = 0; i < directories_.size(); ++i)
    pump(i);  // another one of the same directory takes over
  publish();
}

void announcer::describe(std::size_t which, std::chrono::seconds stale_after) {
  auto& to = directories_[which];
  to.asking = true;
  to.link->describe([this, which, stale_after](result<directory_facts> outcome) {
    post_([this, which, stale_after, outcome = std::move(outcome)] {
      auto& of = directories_[which];
      of.asking = false;
      of.heartbeat_at =
          clock_.now() +
          std::clamp<duration>(stale_after / 2, std::chrono::seconds(1), options_.heartbeat_max);
      if (!outcome && outcome.error().code != errc::not_configured) {
        of.heartbeat_at = clock_.now() + std::chrono::seconds(1);
        failed(which, outcome.error());
        publish();
        return;
      }
      const auto id = outcome ? outcome->id : std::string();
      if (of.up && of.id == id) return;
      of.compares = outcome.has_value();
      of.id = id;
      of.up = true;
      of.behind = true;
      of.trouble.clear();
      of.compare_at = clock_.now();
      log::info("registrar", "announcing to {} directory={}", of.link->address(),
                id.empty() ? "PegaFlow's" : id);
      // A spare one may have turned out to be another directory.
      for (std::size_t i = 0; i < directories_.size(); ++i)
        pump(i);
      publish();
    });
  });
}

void announcer::stop_asking() {
  for (auto& each : directories_)
    each.link.reset();
}

void announcer::tick() {
  if (leaving_) return;
  const auto now = clock_.now();
  for (std::size_t i = 0; i < directories_.size(); ++i)
    if (!directories_[i].asking && now >= directories_[i].heartbeat_at) beat(i);
  drain();
}

void announcer::say_goodbye(task done) {
  leaving_ = true;
  auto left = std::make_shared<std::size_t>(directories_.size());
  for (auto& each : directories_) {
    each.link->farewell([this, left, done](result<void> outcome) {
      post_([this, left, done, outcome = std::move(outcome)] {
        if (!outcome) metrics_.farewell_failures.add();
        if (--*left == 0) done();
      });
    });
  }
}

// -- asking --------------------------------------------------------------------------------------

struct announcer::search {
  named_blocks blocks;
  bool over_gaps = false;
  time_point deadline{};
  directory_done<located_blocks> done;
};

void announcer::locate(named_blocks blocks, bool over_gaps, duration timeout,
                       directory_done<located_blocks> done) {
  metrics_.locates.add();
  ask(0, std::make_shared<search>(
             search{std::move(blocks), over_gaps, clock_.now() + timeout, std::move(done)}));
}

void announcer::ask(std::size_t from, const std::shared_ptr<search>& of) {
  auto next = directories_.size();
  {
    const std::lock_guard lock(mutex_);
    for (auto i = directories_.size(); i > from; --i)
      if (reports_[i - 1].up) next = i - 1;
  }
  const auto left = of->deadline - clock_.now();
  if (next == directories_.size() || left <= duration{}) {
    metrics_.locate_failures.add();
    of->done(fail(errc::unavailable, "no metaserver answers"));
    return;
  }
  // Half of what is left each, so that a silent one leaves time to ask the next.
  const bool last = next + 1 == directories_.size();
  directories_[next].link->locate(of->blocks, of->over_gaps, last ? left : left / 2,
                                  [this, next, of](result<located_blocks> outcome) {
                                    if (outcome) {
                                      of->done(std::move(outcome));
                                    } else {
                                      ask(next + 1, of);
                                    }
                                  });
}

}  // namespace kvd
