#pragma once
// Time, behind a seam: production reads the steady clock, the simulator moves its own.
//
// Everything that expires (leases, unsealed blocks, sessions, deadlines) takes a `const clock&`
// that outlives it. Only this file calls steady_clock::now(); the tidy test checks that.

#include <atomic>
#include <chrono>

namespace kvd {

using time_point = std::chrono::steady_clock::time_point;
using duration = std::chrono::steady_clock::duration;

class clock {
public:
  virtual ~clock() = default;
  // Monotonic; any thread.
  virtual time_point now() const noexcept = 0;
};

class system_clock final : public clock {
public:
  time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
};

// A clock that only moves when told to. Any thread may read it, one moves it.
class fake_clock final : public clock {
public:
  time_point now() const noexcept override {
    return time_point(duration(ticks_.load(std::memory_order_acquire)));
  }
  void advance(duration by) noexcept { ticks_.fetch_add(by.count(), std::memory_order_acq_rel); }

private:
  std::atomic<duration::rep> ticks_{duration(std::chrono::hours(1)).count()};
};

}  // namespace kvd
