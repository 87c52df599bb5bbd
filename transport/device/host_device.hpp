#pragma once
// Copies between the pool and engine memory that this process has mapped: POSIX shared memory.
//
// Owner: the composition root; it outlives every mapping and every submitted job. N threads named
// kvd-copy-0.. share every job, a chunk of at most a few MiB at a time, so that one large job uses
// all of them and a small one never waits for more than the chunks now running.
//
// Which chunk is next: loads before saves, but one save chunk after every few load chunks while
// saves wait; within a direction small jobs before large ones, but one large chunk after every few
// small ones; first come first served otherwise.
//
// Ends: a job's deadline, should_stop and this device's end are looked at before each chunk.
// on_done is called once, on a copy thread that holds no lock, when no thread is inside the job any
// more.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/server_metrics.hpp"
#include "transport/device/copy_job.hpp"
#include "transport/device/copy_slice.hpp"

namespace kvd {

struct host_device_options {
  unsigned threads = 2;      // > 0
  std::size_t jobs_max = 0;  // per direction; limits::copy_jobs_max in production
  int numa_node = -1;        // what numa_node() answers
};

class host_device final : public device {
public:
  // Starts the threads. `time` and `metrics` outlive the device. Updates queue gauges and inflight
  // only: bytes, seconds and failures are counted by whoever owns the jobs.
  host_device(const host_device_options& options, const clock& time, copy_metrics& metrics);
  // Cancels what has not ended; every submitted job has had its on_done when this returns.
  ~host_device() override;
  host_device(const host_device&) = delete;
  host_device& operator=(const host_device&) = delete;

  [[nodiscard]] bool submit(copy_job& job) noexcept override;
  int numa_node() const noexcept override { return options_.numa_node; }

private:
  struct job_list {
    copy_job* head = nullptr;
    copy_job* tail = nullptr;
    void push(copy_job& job) noexcept;
    void pop() noexcept;
  };
  struct direction_queue {
    job_list small;
    job_list large;
    std::size_t waiting = 0;      // jobs that no thread has begun
    unsigned small_in_a_row = 0;  // chunks of small jobs since the last of a large one
    bool empty() const noexcept { return small.head == nullptr && large.head == nullptr; }
  };

  void run() noexcept;
  // All below: mutex_ is held.
  job_list* pick() noexcept;
  copy_slice claim(job_list& from) noexcept;
  // True when `job` has ended and this thread is to say so.
  bool leave(copy_job& job, copy_outcome chunk) noexcept;
  direction_queue& queue_of(copy_direction direction) noexcept;
  gauge& queue_gauge(copy_direction direction) noexcept;

  copy_outcome carry_out(copy_job& job, const copy_slice& slice) noexcept;

  const host_device_options options_;
  const clock& time_;
  copy_metrics& metrics_;
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;  // guards what follows, and the device's part of every submitted job
  std::condition_variable wake_;
  direction_queue saves_;
  direction_queue loads_;
  unsigned loads_in_a_row_ = 0;  // load chunks since the last save chunk
  unsigned asleep_ = 0;

  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace kvd
