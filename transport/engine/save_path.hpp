#pragma once
// Carries out Save: claims the parts that are new, copies them from the worker, seals blocks.
//
//   start(): bundle layers by part -> claim -> copy (device thread) -> commit -> reply
//
// A block that another save is copying right now is not copied twice: the job waits for it, and
// claims again if that copy failed. So all blocks of a Save can be found when it is answered, up to
// what the pool had no room for.
//
// Threads: start() on any; the rest on the device's copy threads. Owner of every job until its
// reply; jobs are pooled.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine.pb.h"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"
#include "transport/device/copy_job.hpp"
#include "transport/engine/instance.hpp"
#include "transport/engine/job_pool.hpp"

namespace kvd {

// Whoever waits for a Save. Called exactly once, on any thread; then the request may go.
class save_waiter {
public:
  // The text says how many blocks were left out, if any; empty when all are stored.
  virtual void saved(result<std::string> outcome) noexcept = 0;

protected:
  ~save_waiter() = default;
};

class save_path {
public:
  // The references outlive it, and it outlives all copies.
  save_path(block_store& store, const clock& time, copy_metrics& metrics);
  ~save_path();

  // `request` and `waiter` live until the waiter is called; that may be before this returns.
  void start(operation running, const pegaflow::SaveRequest& request, save_waiter& waiter);
  // Answers saves that have waited too long for another's copy. The cache actor calls it.
  void tick();
  // Saves that wait try again: the pool has grown, or another's copy ended.
  void wake_waiting();
  // Saves under way.
  std::size_t running() const noexcept { return jobs_.in_use(); }

private:
  struct job;
  struct bundle;

  result<void> prepare(job& work);
  result<void> add_layer(job& work, const pegaflow::SaveLayer& layer);
  void step(job& work);
  bool claim(job& work);
  void add_ranges(job& work, const bundle& of);
  void copied(job& work, copy_outcome outcome);
  void park(job& work);
  void finish(job& work, result<std::string> outcome);

  block_store& store_;
  const clock& clock_;
  copy_metrics& metrics_;
  job_pool<job> jobs_;
  std::mutex parked_mutex_;    // only for saves that met another's copy
  job* parked_ = nullptr;      // GUARDED_BY(parked_mutex_), a list through job::next
  std::uint64_t commits_ = 0;  // GUARDED_BY(parked_mutex_), so that no wake-up is lost
};

}  // namespace kvd
