#pragma once
// A handler that throws ends its actor, and with it everything the actor owns. So no exception
// leaves a handler: it is logged, counted, and whoever waited is answered by the dropped reply.
// A handler that takes long keeps all others waiting, so that is said and counted too.

#include <chrono>
#include <exception>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/server_metrics.hpp"

namespace kvd {

// Far beyond what any handler needs; a release of memory by the kernel has been seen to take more.
inline constexpr std::chrono::seconds handler_time_max{5};

template<class Body>
void guarded(const char* actor, control_metrics& metrics, const clock& time, Body body) noexcept {
  const auto started = time.now();
  try {
    body();
  } catch (const std::exception& thrown) {
    metrics.task_failures.add();
    log::error(actor, "a handler failed: {}", thrown.what());
  } catch (...) {
    metrics.task_failures.add();
    log::error(actor, "a handler failed");
  }
  const auto took = time.now() - started;
  if (took < handler_time_max) return;
  metrics.slow_tasks.add();
  log::warn(actor, "a handler took {} s, and everything sent to this actor waited",
            std::chrono::duration_cast<std::chrono::seconds>(took).count());
}

}  // namespace kvd
