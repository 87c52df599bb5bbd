#include "memory/transfer_locks.hpp"

#include <utility>

#include <fmt/format.h>

namespace kvd {

transfer_locks::transfer_locks(block_store& store, const clock& time, random_source& random,
                               sharing_metrics& metrics, std::chrono::seconds timeout)
    : store_(store), clock_(time), random_(random), metrics_(metrics), timeout_(timeout) {}

transfer_locks::~transfer_locks() {
  for (auto& each : sessions_)
    end(each.second);
}

void transfer_locks::end(held& over) noexcept {
  // Counted last: who waits for 0 may take the pool away.
  store_.unpin(over.blocks);
  metrics_.locked_blocks.add(-static_cast<std::int64_t>(over.blocks.size()));
}

result<transfer_locks::session> transfer_locks::lock(scope_id in, hash_list hashes) {
  session open;
  store_.pin_members(in, hashes, open.blocks, open.positions);
  open.id = fmt::format("{:016x}{:016x}", random_.next(), random_.next());
  const std::lock_guard lock(mutex_);
  if (sessions_.size() >= limits::transfer_sessions_max) {
    store_.unpin(open.blocks);
    return fail(errc::limit_exceeded, fmt::format("{} transfers are open, limit {}",
                                                  sessions_.size(), limits::transfer_sessions_max));
  }
  metrics_.locked_blocks.add(static_cast<std::int64_t>(open.blocks.size()));
  sessions_.emplace(open.id, held{open.blocks, clock_.now()});
  return open;
}

std::size_t transfer_locks::unlock(std::string_view id) {
  held over;
  {
    const std::lock_guard lock(mutex_);
    const auto at = sessions_.find(id);
    if (at == sessions_.end()) return 0;
    over = std::move(at->second);
    sessions_.erase(at);
  }
  end(over);
  return over.blocks.size();
}

std::size_t transfer_locks::expire() {
  std::vector<held> over;
  {
    const auto before = clock_.now() - timeout_;
    const std::lock_guard lock(mutex_);
    for (auto at = sessions_.begin(); at != sessions_.end();) {
      if (at->second.since > before) {
        ++at;
        continue;
      }
      over.push_back(std::move(at->second));
      at = sessions_.erase(at);
    }
  }
  for (auto& each : over)
    end(each);
  metrics_.lock_timeouts.add(over.size());
  return over.size();
}

}  // namespace kvd
