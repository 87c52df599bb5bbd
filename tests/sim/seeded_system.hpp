#pragma once
// Actors under one seed: a fake clock, and a scheduler that picks who runs next by chance.
//
// Production code, simulated world. Each step takes one ready actor, chosen by the seed, and lets
// it handle one message; messages between two actors keep their order, as CAF promises, and nothing
// else does. The same seed gives the same run. Nothing here is a thread: a spawned `detached` actor
// would be one, and would end the determinism.
//
// Owner: one test, one thread. Call order: spawn, then step(), run() or advance() as you like. The
// destructor needs every actor to have ended, or ends by itself once nobody holds a handle.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include "core/clock.hpp"
#include "core/random.hpp"

namespace kvd::sim {

class seeded_system {
public:
  // `config` outlives this; its scheduler policy is overwritten.
  seeded_system(std::uint64_t seed, caf::actor_system_config& config);
  ~seeded_system();
  seeded_system(const seeded_system&) = delete;
  seeded_system& operator=(const seeded_system&) = delete;

  caf::actor_system& actors() noexcept { return system_; }
  const clock& time() const noexcept { return time_; }
  seeded_random& random() noexcept { return random_; }

  // Lets one ready actor, if there is any, handle one message.
  bool step();
  // Steps until nobody is ready; returns the number of steps. Aborts the test after `steps_max`:
  // actors that keep each other busy for ever are a bug.
  std::size_t run(std::size_t steps_max);
  // Moves both clocks on, kvd's and CAF's, which makes delayed messages due. Runs nobody.
  void advance(duration by);

private:
  seeded_random random_;
  fake_clock time_;
  caf::actor_system system_;
  caf::scheduler::test_coordinator& scheduler_;
};

// Calls `scenario` with seed after seed and names the seed of one that fails. How many:
// KVD_SIM_SEEDS in the environment, else `count`. KVD_SIM_SEED runs that one seed only.
//
// A seed that fails is kept, with the name of its test, in the file `failed_seeds` of the working
// directory, which CTest leaves in the build directory, and is run before all others from then on.
void for_each_seed(std::size_t count, const std::function<void(std::uint64_t)>& scenario);

}  // namespace kvd::sim
