#include "transport/device/host_device.hpp"

#include <algorithm>
#include <cassert>
#include <csignal>

#include <fmt/format.h>
#include <pthread.h>

namespace kvd {

namespace {

// 2 MiB take about 0.2 ms at 10 GB/s a thread (one core of an EPYC 7B13 guest, 2026-12): that is
// what a small load waits for at most, and what a cancelled job still writes.
constexpr std::uint64_t chunk_bytes = 2 << 20;
// Bounds the walk under the lock when ranges are tiny.
constexpr std::size_t chunk_ranges_max = 1024;
// Up to two chunks a job counts as small: it cannot use more than two threads anyway.
constexpr std::uint64_t small_job_bytes = 2 * chunk_bytes;
// Saves keep a fifth of the copy threads under constant loads, large jobs a ninth under small ones.
constexpr unsigned loads_per_save = 4;
constexpr unsigned smalls_per_large = 8;

// Signals are for the main thread; only those that an instruction raises stay with the thread.
void block_signals() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int synchronous : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP}) {
    sigdelset(&blocked, synchronous);
  }
  ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

bool handed_out(const copy_job& job) {
  return job.range_cursor == job.ranges.size();
}

}  // namespace

void host_device::job_list::push(copy_job& job) noexcept {
  job.next = nullptr;
  if (tail != nullptr) {
    tail->next = &job;
  } else {
    head = &job;
  }
  tail = &job;
}

void host_device::job_list::pop() noexcept {
  head = head->next;
  if (head == nullptr) tail = nullptr;
}

host_device::host_device(const host_device_options& options, const clock& time,
                         copy_metrics& metrics)
    : options_(options), time_(time), metrics_(metrics) {
  assert(options.threads > 0 && options.jobs_max > 0);
  install_fault_guard();
  threads_.reserve(options.threads);
  for (unsigned i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this, name = fmt::format("kvd-copy-{}", i)] {
      ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
      block_signals();
      run();
    });
  }
}

host_device::~host_device() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_all();
  for (auto& thread : threads_) {
    thread.join();
  }
}

host_device::direction_queue& host_device::queue_of(copy_direction direction) noexcept {
  return direction == copy_direction::load ? loads_ : saves_;
}

gauge& host_device::queue_gauge(copy_direction direction) noexcept {
  return direction == copy_direction::load ? metrics_.load_queue : metrics_.save_queue;
}

bool host_device::submit(copy_job& job) noexcept {
  assert(job.on_done != nullptr);
  job.total_bytes = 0;
  for (const auto& range : job.ranges) {
    job.total_bytes += range.bytes;
  }
  job.range_cursor = 0;
  job.byte_cursor = 0;
  job.workers = 0;
  job.started = false;
  job.outcome = copy_outcome::done;
  job.stop.store(false, std::memory_order_relaxed);
  // `job` may be done and gone as soon as the lock is released.
  const bool wide = job.total_bytes > chunk_bytes;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    auto& queue = queue_of(job.direction);
    if (stopping_.load(std::memory_order_relaxed) || queue.waiting >= options_.jobs_max) {
      return false;
    }
    (job.total_bytes <= small_job_bytes ? queue.small : queue.large).push(job);
    ++queue.waiting;
    queue_gauge(job.direction).add(1);
    wake = asleep_ > 0;
  }
  if (wake && wide) {
    wake_.notify_all();
  } else if (wake) {
    wake_.notify_one();
  }
  return true;
}

host_device::job_list* host_device::pick() noexcept {
  if (loads_.empty() && saves_.empty()) return nullptr;
  const bool save = loads_.empty() || (!saves_.empty() && loads_in_a_row_ >= loads_per_save);
  loads_in_a_row_ = save ? 0 : std::min(loads_in_a_row_ + 1, loads_per_save);
  auto& queue = save ? saves_ : loads_;
  const bool large = queue.small.head == nullptr ||
                     (queue.large.head != nullptr && queue.small_in_a_row >= smalls_per_large);
  queue.small_in_a_row = large ? 0 : std::min(queue.small_in_a_row + 1, smalls_per_large);
  return large ? &queue.large : &queue.small;
}

copy_slice host_device::claim(job_list& from) noexcept {
  auto& job = *from.head;
  if (!job.started) {
    job.started = true;
    --queue_of(job.direction).waiting;
    queue_gauge(job.direction).add(-1);
    metrics_.inflight.add(1);
  }
  ++job.workers;
  const auto first = job.range_cursor;
  copy_slice slice{{}, job.byte_cursor, 0};
  std::size_t ranges = 0;
  while (!handed_out(job) && slice.bytes < chunk_bytes && ranges < chunk_ranges_max) {
    const auto left = job.ranges[job.range_cursor].bytes - job.byte_cursor;
    const auto bytes = std::min(left, chunk_bytes - slice.bytes);
    slice.bytes += bytes;
    ++ranges;
    if (bytes == left) {
      ++job.range_cursor;
      job.byte_cursor = 0;
    } else {
      job.byte_cursor += bytes;
    }
  }
  slice.ranges = std::span<const copy_range>(job.ranges).subspan(first, ranges);
  if (handed_out(job)) from.pop();
  return slice;
}

copy_outcome host_device::carry_out(copy_job& job, const copy_slice& slice) noexcept {
  if (job.stop.load(std::memory_order_relaxed)) return copy_outcome::cancelled;
  if (stopping_.load(std::memory_order_relaxed)) return copy_outcome::cancelled;
  if (job.deadline != time_point::max() && time_.now() >= job.deadline) {
    return copy_outcome::cancelled;
  }
  if (job.should_stop != nullptr && job.should_stop(job.owner)) return copy_outcome::cancelled;
  return copy_bytes(slice) ? copy_outcome::done : copy_outcome::failed;
}

bool host_device::leave(copy_job& job, copy_outcome chunk) noexcept {
  // The first chunk that goes wrong decides what is said about the job.
  if (chunk != copy_outcome::done && job.outcome == copy_outcome::done) {
    job.outcome = chunk;
    job.stop.store(true, std::memory_order_relaxed);
    // A begun job with bytes left to hand out is the head of its list: only heads are handed out.
    if (!handed_out(job)) {
      auto& queue = queue_of(job.direction);
      (queue.small.head == &job ? queue.small : queue.large).pop();
    }
  }
  --job.workers;
  const bool over = handed_out(job) || job.outcome != copy_outcome::done;
  return over && job.workers == 0;
}

void host_device::run() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto* list = pick();
    if (list == nullptr) {
      if (stopping_.load(std::memory_order_relaxed)) return;
      ++asleep_;
      wake_.wait(lock);
      --asleep_;
      continue;
    }
    auto& job = *list->head;
    const auto slice = claim(*list);
    lock.unlock();
    const auto chunk = carry_out(job, slice);
    lock.lock();
    if (leave(job, chunk)) {
      const auto outcome = job.outcome;
      metrics_.inflight.add(-1);
      lock.unlock();
      job.on_done(job, outcome);
      lock.lock();
    }
  }
}

}  // namespace kvd
