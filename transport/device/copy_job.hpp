#pragma once
// One piece of copying between an engine's memory and the pool, and who may carry it out.
//
// Protocol: the owner of a copy_job fills `ranges` (and the rest), submits it to a device, and does
// not touch it until `on_done` is called, exactly once, on a copy thread. The job is the owner's
// again from the first line of on_done: it may be freed, or submitted again, right there. Jobs are
// pooled by their owner and keep their capacity, so that a warmed-up server allocates nothing here.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/clock.hpp"

namespace kvd {

struct copy_range {
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;
};

enum class copy_direction : std::uint8_t { save, load };  // device -> pool, pool -> device
// failed: a page of either side could not be had (an engine shrank its memory).
// cancelled: deadline, should_stop, or the device is going away. Both may leave a part copied.
enum class copy_outcome : std::uint8_t { done, failed, cancelled };

// REQUIRES: no byte is written by two ranges of one job, nor written by one and read by another;
// chunks of a job run on several threads and in no particular order. Sources may repeat. Both ends
// of every range stay mapped until on_done.
struct copy_job {
  copy_direction direction = copy_direction::save;
  std::vector<copy_range> ranges;
  time_point deadline = time_point::max();
  // Asked before each chunk, on copy threads, several at once; true stops the job, and nothing is
  // written after on_done. May be null.
  bool (*should_stop)(void* owner) noexcept = nullptr;
  void (*on_done)(copy_job& job, copy_outcome outcome) noexcept = nullptr;
  void* owner = nullptr;

  // The device's, while the job is submitted; submit() resets them. total_bytes stays readable in
  // on_done.
  std::uint64_t total_bytes = 0;
  copy_job* next = nullptr;
  std::size_t range_cursor = 0;   // first range that is not wholly handed out
  std::uint64_t byte_cursor = 0;  // bytes of it that are
  unsigned workers = 0;           // threads inside a chunk of this job
  bool started = false;
  copy_outcome outcome = copy_outcome::done;
  std::atomic<bool> stop{false};  // a chunk did not end well: the other threads need not begin
};

// Sorts `ranges` by the address that `direction` reads, merges neighbours that are contiguous on
// both sides, and drops empty ones. Never changes which bytes go where. Allocates nothing.
void plan_copies(copy_job& job) noexcept;

// An engine's memory of one kind. host_device is POSIX shared memory; a CUDA device has its place
// beside it, same stem.
class device {
public:
  virtual ~device() = default;
  // Any thread; returns at once. Full queue: on_done(failed) is not called, false is returned.
  [[nodiscard]] virtual bool submit(copy_job& job) noexcept = 0;
  // NUMA node nearest to this device's memory, -1 when unknown.
  virtual int numa_node() const noexcept = 0;
};

}  // namespace kvd
