#pragma once
// A copy job that remembers how it ended and lets a test step in between its chunks.

#include <atomic>
#include <functional>
#include <semaphore>
#include <vector>

#include "transport/device/copy_job.hpp"

namespace kvd::test {

struct tracked_job {
  copy_job job;
  std::function<bool()> before_chunk;  // copy thread; true stops the job
  std::function<void()> at_end;        // copy thread, from on_done
  std::atomic<int> ends{0};
  copy_outcome outcome = copy_outcome::failed;
  std::binary_semaphore ended{0};

  tracked_job() {
    job.owner = this;
    job.should_stop = [](void* owner) noexcept {
      auto& self = *static_cast<tracked_job*>(owner);
      return self.before_chunk && self.before_chunk();
    };
    job.on_done = [](copy_job& done, copy_outcome how) noexcept {
      auto& self = *static_cast<tracked_job*>(done.owner);
      self.outcome = how;
      self.ends.fetch_add(1);
      if (self.at_end) self.at_end();
      self.ended.release();
    };
  }
  tracked_job(copy_direction direction, std::byte* to, const std::byte* from, std::uint64_t bytes)
      : tracked_job() {
    job.direction = direction;
    job.ranges.push_back({to, from, bytes});
  }
  copy_outcome wait() {
    ended.acquire();
    return outcome;
  }
};

}  // namespace kvd::test
