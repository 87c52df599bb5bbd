#include "tests/sim/seeded_system.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

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

constexpr const char* kept_in = "failed_seeds";

// A line: the seed, a blank, the name of the test.
std::vector<std::uint64_t> kept_seeds(const std::string& test) {
  std::vector<std::uint64_t> seeds;
  std::ifstream file(kept_in);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::uint64_t seed = 0;
    std::string name;
    if (words >> seed && std::getline(words.ignore(1), name) && name == test) seeds.push_back(seed);
  }
  return seeds;
}

// Hears of every check that fails and writes down the seed that runs.
class seed_keeper final : public doctest::IReporter {
public:
  explicit seed_keeper(const doctest::ContextOptions&) {}
  static inline std::uint64_t running = 0;  // 0: none
  static inline std::string test;

  void test_case_start(const doctest::TestCaseData& of) override { test = of.m_name; }
  void log_assert(const doctest::AssertData& of) override {
    if (of.m_failed) keep();
  }
  void test_case_exception(const doctest::TestCaseException&) override { keep(); }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

private:
  static void keep() {
    const auto known = kept_seeds(test);
    if (running == 0 || std::find(known.begin(), known.end(), running) != known.end()) return;
    std::ofstream(kept_in, std::ios::app) << running << ' ' << test << '\n';
  }
};

REGISTER_LISTENER("seed_keeper", 1, seed_keeper);

void run_seed(std::uint64_t seed, const std::function<void(std::uint64_t)>& scenario) {
  INFO("again with: KVD_SIM_SEED=", seed);
  seed_keeper::running = seed;
  scenario(seed);
  seed_keeper::running = 0;
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
  std::uint64_t only = 0;
  if (number_from("KVD_SIM_SEED", only)) return run_seed(only, scenario);
  for (const auto seed : kept_seeds(seed_keeper::test))
    run_seed(seed, scenario);
  std::uint64_t seeds = count;
  number_from("KVD_SIM_SEEDS", seeds);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    run_seed(seed, scenario);
}

}  // namespace kvd::sim
