#pragma once
// A handler that throws ends its actor, and with it everything the actor owns. So no exception
// leaves a handler: it is logged, counted, and whoever waited is answered by the dropped reply.

#include <exception>

#include "core/log.hpp"
#include "core/server_metrics.hpp"

namespace kvd {

template<class Body>
void guarded(const char* actor, control_metrics& metrics, Body body) noexcept {
  try {
    body();
  } catch (const std::exception& thrown) {
    metrics.task_failures.add();
    log::error(actor, "a handler failed: {}", thrown.what());
  } catch (...) {
    metrics.task_failures.add();
    log::error(actor, "a handler failed");
  }
}

}  // namespace kvd
