#include "memory/residency_feed.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace kvd {

residency_feed::residency_feed(std::size_t capacity, std::function<void()> wake)
    : wake_(std::move(wake)), ring_(capacity) {}

void residency_feed::push(scope_id in, std::string_view hash, bool resident) noexcept {
  assert(hash.size() <= limits::hash_bytes_max);
  {
    const std::lock_guard lock(mutex_);
    if (count_ == ring_.size()) {
      lost_ = true;
    } else {
      auto& event = ring_[(first_ + count_) % ring_.size()];
      event.in = in;
      event.resident = resident;
      event.size = static_cast<std::uint8_t>(hash.size());
      std::copy(hash.begin(), hash.end(), event.bytes.begin());
      ++count_;
    }
    if (std::exchange(awake_, true)) return;
  }
  if (wake_) wake_();
}

bool residency_feed::take(std::vector<residency_event>& out, std::size_t events_max) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(lost_, false)) {
    // What is left is older than what was lost, and would be taken for the last word.
    count_ = 0;
    awake_ = false;
    return true;
  }
  const auto taken = std::min(events_max, count_);
  for (std::size_t i = 0; i < taken; ++i)
    out.push_back(ring_[(first_ + i) % ring_.size()]);
  first_ = (first_ + taken) % ring_.size();
  count_ -= taken;
  if (count_ == 0) awake_ = false;
  return false;
}

bool residency_feed::empty() const {
  const std::lock_guard lock(mutex_);
  return count_ == 0 && !lost_;
}

}  // namespace kvd
