#include "transport/device/inline_device.hpp"

#include <algorithm>
#include <cassert>
#include <new>

#include "transport/device/copy_slice.hpp"

namespace kvd {

inline_device::inline_device(std::size_t jobs_max, const clock& time, copy_metrics& metrics)
    : jobs_max_(jobs_max), time_(time), metrics_(metrics) {
  install_fault_guard();
}

inline_device::~inline_device() {
  script_.clear();
  while (!jobs_.empty()) {
    script_.assign(1, copy_script::cancel);
    run(0);
  }
}

std::size_t inline_device::count(copy_direction direction) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(jobs_.begin(), jobs_.end(),
                    [direction](const copy_job* job) { return job->direction == direction; }));
}

bool inline_device::submit(copy_job& job) noexcept {
  assert(job.on_done != nullptr);
  if (count(job.direction) >= jobs_max_) return false;
  job.total_bytes = 0;
  for (const auto& range : job.ranges) {
    job.total_bytes += range.bytes;
  }
  job.stop.store(false, std::memory_order_relaxed);
  try {
    jobs_.push_back(&job);
  } catch (const std::bad_alloc&) {
    return false;
  }
  (job.direction == copy_direction::load ? metrics_.load_queue : metrics_.save_queue).add(1);
  return true;
}

void inline_device::script(copy_script next) {
  script_.push_back(next);
}

bool inline_device::run_one() noexcept {
  if (jobs_.empty()) return false;
  run(0);
  return true;
}

void inline_device::run(std::size_t index) noexcept {
  assert(index < jobs_.size());
  auto how = copy_script::copy;
  if (!script_.empty()) {
    how = script_.front();
    script_.pop_front();
  }
  const auto place = jobs_.begin() + static_cast<std::ptrdiff_t>(index);
  auto& job = **place;
  if (how == copy_script::postpone) {
    std::rotate(place, place + 1, jobs_.end());
    return;
  }
  jobs_.erase(place);
  (job.direction == copy_direction::load ? metrics_.load_queue : metrics_.save_queue).add(-1);
  metrics_.inflight.add(1);
  const auto outcome = carry_out(job, how);
  metrics_.inflight.add(-1);
  job.on_done(job, outcome);
}

copy_outcome inline_device::carry_out(copy_job& job, copy_script how) noexcept {
  if (how == copy_script::cancel) return copy_outcome::cancelled;
  if (job.deadline != time_point::max() && time_.now() >= job.deadline) {
    return copy_outcome::cancelled;
  }
  if (job.should_stop != nullptr && job.should_stop(job.owner)) return copy_outcome::cancelled;
  auto ranges = std::span<const copy_range>(job.ranges);
  if (how == copy_script::fail) ranges = ranges.first(ranges.size() / 2);
  std::uint64_t bytes = 0;
  for (const auto& range : ranges) {
    bytes += range.bytes;
  }
  const bool copied = copy_bytes({ranges, 0, bytes});
  return copied && how != copy_script::fail ? copy_outcome::done : copy_outcome::failed;
}

}  // namespace kvd
