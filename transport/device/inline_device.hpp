#pragma once
// A device that copies only when told to, on the thread that tells it: for the simulation and for
// tests, where a seed decides what ends when and how.
//
// One thread. The same rules as host_device's: deadline and should_stop are looked at first,
// on_done is called once, and a job that is still queued when the device goes ends as cancelled.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/clock.hpp"
#include "core/server_metrics.hpp"
#include "transport/device/copy_job.hpp"

namespace kvd {

// How the next job goes.
enum class copy_script : std::uint8_t {
  copy,      // as it should
  fail,      // half of its ranges are copied, then failed
  cancel,    // nothing is copied, cancelled
  postpone,  // it goes to the end of the queue
};

class inline_device final : public device {
public:
  // `time` and `metrics` outlive the device. jobs_max: per direction, as for host_device.
  inline_device(std::size_t jobs_max, const clock& time, copy_metrics& metrics);
  ~inline_device() override;
  inline_device(const inline_device&) = delete;
  inline_device& operator=(const inline_device&) = delete;

  [[nodiscard]] bool submit(copy_job& job) noexcept override;
  int numa_node() const noexcept override { return -1; }

  // What happens to the jobs that run next, one entry a job; without entries they are copied.
  void script(copy_script next);
  std::size_t queued() const noexcept { return jobs_.size(); }
  // Runs the oldest job. False when there is none.
  bool run_one() noexcept;
  // Runs the index-th oldest job, index < queued(): a seed may pick any.
  void run(std::size_t index) noexcept;

private:
  copy_outcome carry_out(copy_job& job, copy_script how) noexcept;
  std::size_t count(copy_direction direction) const noexcept;

  const std::size_t jobs_max_;
  const clock& time_;
  copy_metrics& metrics_;
  std::deque<copy_job*> jobs_;
  std::deque<copy_script> script_;
};

}  // namespace kvd
