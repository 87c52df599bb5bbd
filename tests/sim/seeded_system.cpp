#include "tests/sim/seeded_system.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <caf/atom.hpp>
#include <doctest/doctest.h>

namespace kvd::sim {

namespace {

caf::actor_system_config& with_test_scheduler(caf::actor_system_config& config) {
  config.set("scheduler.policy", caf::atom("testing"));
  return config;
}

// A number from the environment; a value that is none fails the test rather than being ignored.
bool number_from(const char* variable, std::uint64_t& out) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return false;
  char* end = nullptr;
  out = std::strtoull(text, &end, 10);
  const bool valid = end != text && *end == '\0';
  REQUIRE_MESSAGE(valid, std::string(variable), " is no number: ", std::string(text));
  return true;
}

}  // namespace

seeded_system::seeded_system(std::uint64_t seed, caf::actor_system_config& config)
    : random_(seed), system_(with_test_scheduler(config)),
      scheduler_(dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler())) {}

seeded_system::~seeded_system() {
  scheduler_.run();
}

bool seeded_system::step() {
  auto& jobs = scheduler_.jobs;
  if (jobs.empty()) return false;
  const auto chosen = static_cast<std::ptrdiff_t>(random_.below(jobs.size()));
  std::rotate(jobs.begin(), jobs.begin() + chosen, jobs.begin() + chosen + 1);
  scheduler_.run_once();
  return true;
}

std::size_t seeded_system::run(std::size_t steps_max) {
  std::size_t steps = 0;
  while (step()) {
    ++steps;
    REQUIRE_MESSAGE(steps <= steps_max, "actors are still busy after ", steps_max, " steps");
  }
  return steps;
}

void seeded_system::advance(duration by) {
  time_.advance(by);
  scheduler_.advance_time(by);
}

void for_each_seed(std::size_t count, const std::function<void(std::uint64_t)>& scenario) {
  std::uint64_t first = 1;
  std::uint64_t seeds = count;
  if (number_from("KVD_SIM_SEED", first)) {
    seeds = 1;
  } else {
    number_from("KVD_SIM_SEEDS", seeds);
  }
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    INFO("again with: KVD_SIM_SEED=", seed);
    scenario(seed);
  }
}

}  // namespace kvd::sim
