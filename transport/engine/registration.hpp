#pragma once
// From a RegisterContextBatch request to the next version of its instance.
//
// Plain and without state; the engine actor owns the order of registrations. Opening a worker's
// memory happens here, so it may take milliseconds; nothing is left behind when it fails.

#include <functional>
#include <memory>

#include "engine.pb.h"

#include "core/error.hpp"
#include "memory/block_store.hpp"
#include "transport/device/device_memory.hpp"
#include "transport/engine/instance.hpp"

namespace kvd {

// Everything about the request that can be said without knowing the instance. invalid_argument.
result<void> validate(const pegaflow::RegisterContextRequest& request);

// Opens the worker's memory and checks each layer's layout against it.
result<std::shared_ptr<const worker>> open_worker(const pegaflow::RegisterContextRequest& request,
                                                  device_opener& opener);

// The version of the instance that has `fresh` too; `current` is null for the first worker. Seals
// the topology and opens its scopes when it is the last worker.
// REQUIRES: validate(request) passed and `fresh` was opened from it.
result<std::shared_ptr<const instance>> add_worker(const pegaflow::RegisterContextRequest& request,
                                                   std::shared_ptr<const instance> current,
                                                   std::shared_ptr<const worker> fresh,
                                                   std::shared_ptr<instance_life> life,
                                                   std::uint64_t serial, block_store& store);

// Whether the worker could join, before its memory is opened.
result<void> check_joins(const pegaflow::RegisterContextRequest& request, const instance& current);

}  // namespace kvd
