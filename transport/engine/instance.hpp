#pragma once
// An engine replica as the data path sees it: immutable, shared by everything in flight for it.
//
// Each registration makes a new `instance` with one worker more; the table publishes it, requests
// that hold the old one go on with it. What changes while requests run is in `instance_life`, which
// all versions of one instance share: how many operations run, and that it is closing.
//
// Nobody unmaps a worker's memory under a copy: the last holder of the instance does, and every
// copy holds it.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "core/metric.hpp"
#include "memory/block_store.hpp"
#include "memory/topology.hpp"
#include "transport/device/device_memory.hpp"

namespace kvd {

// One worker (device) with its layers, parallel to `layout.layers`.
struct worker {
  worker_layout layout;
  std::vector<std::shared_ptr<device_memory>> memory;
  std::unordered_map<std::string, std::uint32_t> layer_by_name;

  // Carries out its copies; all its layers are of one device.
  device& copier() const noexcept { return memory.front()->owner(); }
};

// Counts what runs for an instance and refuses new work once it closes.
class instance_life {
public:
  // `when_idle` is called once, on any thread, when close() was called and nothing runs any more.
  explicit instance_life(std::function<void()> when_idle) : when_idle_(std::move(when_idle)) {}

  bool begin() noexcept;
  void end() noexcept;
  // No new operation begins. With `cancel`, loads in flight stop at the next chunk.
  void close(bool cancel) noexcept;
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_acquire); }
  std::uint32_t running() const noexcept;

  // Blocks that its group-0 queries asked for, and those of the hits that another instance saved.
  counter blocks_asked;
  counter foreign_hits;

private:
  // The lowest bit says closing, the rest counts operations, so that both change as one.
  static constexpr std::uint32_t closing = 1;
  static constexpr std::uint32_t one_operation = 2;
  std::function<void()> when_idle_;
  std::atomic<std::uint32_t> state_{0};
  std::atomic<bool> cancelled_{false};
};

struct instance {
  std::string id;
  std::string namespace_name;
  std::uint64_t serial = 0;  // never reused, unlike ids
  std::uint32_t tp_size = 0;
  std::uint32_t world_size = 0;
  bool page_first = false;
  std::vector<std::shared_ptr<const worker>> workers;
  std::shared_ptr<instance_life> life;

  // Set when all workers are registered; then `scopes` has one entry a group.
  bool sealed = false;
  std::shared_ptr<const topology> places;
  std::vector<scope_id> scopes;

  const worker* find_worker(std::int32_t device_id) const noexcept;
  // invalid_argument "instance X registration incomplete: n/W workers registered".
  result<void> require_sealed() const;
};

// What the block store remembers of who saved a block; serials that far apart do not meet.
inline std::uint32_t origin_of(const instance& of) noexcept {
  return static_cast<std::uint32_t>(of.serial);
}

// The instances that requests can find. Threads: any; written by the engine actor alone.
class instance_table {
public:
  std::shared_ptr<const instance> find(const std::string& id) const;
  void publish(std::shared_ptr<const instance> version);
  void remove(const std::string& id);
  std::vector<std::shared_ptr<const instance>> all() const;

private:
  mutable std::shared_mutex mutex_;  // read per request, written per registration
  std::unordered_map<std::string, std::shared_ptr<const instance>>
      instances_;  // GUARDED_BY(mutex_)
};

// One operation of an instance, for as long as it lives; keeps the instance and its memory.
class operation {
public:
  operation() = default;
  // instance_missing when it is closing.
  static result<operation> begin(std::shared_ptr<const instance> of);
  operation(operation&& other) noexcept : of_(std::move(other.of_)) {}
  operation& operator=(operation&& other) noexcept;
  ~operation() { end(); }
  void end() noexcept;
  const instance& of() const noexcept { return *of_; }

private:
  std::shared_ptr<const instance> of_;
};

}  // namespace kvd
