#pragma once
// One piece of copying between an engine's memory and the pool, and who may carry it out.
//
// Protocol: the owner of a copy_job fills `ranges` (and the rest), submits it to a device, and does
// not touch it until `on_done` is called, exactly once, on a copy thread. The job is the owner's
// again from the first line of on_done. Jobs are pooled by their owner and keep their capacity, so
// that a warmed-up server allocates nothing here.

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
enum class copy_outcome : std::uint8_t { done, failed, cancelled };

struct copy_job {
  copy_direction direction = copy_direction::save;
  std::vector<copy_range> ranges;
  time_point deadline = time_point::max();
  // Asked between chunks; true stops the job, and nothing is written after on_done. May be null.
  bool (*should_stop)(void* owner) noexcept = nullptr;
  void (*on_done)(copy_job& job, copy_outcome outcome) noexcept = nullptr;
  void* owner = nullptr;

  // The device's, while the job is submitted.
  std::uint64_t total_bytes = 0;
  copy_job* next = nullptr;
  std::size_t range_cursor = 0;
  std::uint64_t byte_cursor = 0;
  unsigned workers = 0;
  std::atomic<bool> stop{false};
};

// Sorts `ranges` by pool or device address (whichever `direction` reads), merges neighbours that
// are contiguous on both sides, and drops empty ones. Never changes which bytes go where.
void plan_copies(copy_job& job);

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
