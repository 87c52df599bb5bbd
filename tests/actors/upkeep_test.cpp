// What the background actors notice by themselves.

#include <memory>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include "actors/guarded.hpp"
#include "actors/reply.hpp"
#include "actors/sharing_watch.hpp"
#include "core/clock.hpp"

using namespace kvd;

namespace {

std::shared_ptr<instance> replica(const std::string& id, std::uint64_t serial, std::uint64_t asked,
                                  std::uint64_t foreign) {
  auto made = std::make_shared<instance>();
  made->id = id;
  made->namespace_name = "model";
  made->serial = serial;
  made->life = std::make_shared<instance_life>([] {});
  made->life->blocks_asked.add(asked);
  made->life->foreign_hits.add(foreign);
  return made;
}

}  // namespace

TEST_CASE("33: replicas that never share a block are named once") {
  instance_table instances;
  sharing_watch watch;
  instances.publish(replica("a", 1, 20'000, 0));
  CHECK(watch.look(instances) == 0);  // alone, there is nobody to share with
  instances.publish(replica("b", 2, 20'000, 0));
  CHECK(watch.look(instances) == 2);
  CHECK(watch.look(instances) == 0);
}

TEST_CASE("33: one shared block, or few questions, are no reason to warn") {
  instance_table instances;
  sharing_watch watch;
  instances.publish(replica("a", 1, 20'000, 3));
  instances.publish(replica("b", 2, 20'000, 1));
  instances.publish(replica("c", 3, 500, 0));
  CHECK(watch.look(instances) == 0);
}

TEST_CASE("a handler that throws is counted, and its caller is answered all the same") {
  control_metrics metrics;
  const fake_clock time;
  std::string answer;
  {
    const reply<void> waiting([&](result<void> how) { answer = how ? "ok" : how.error().detail; });
    guarded("test", metrics, time, [&] {
      const auto mine = waiting;
      throw std::runtime_error("broken");
    });
  }
  CHECK(metrics.task_failures.value() == 1);
  CHECK(answer == "the request was dropped before it was answered");
}

TEST_CASE("4: a handler that keeps its actor busy for seconds is counted") {
  control_metrics metrics;
  fake_clock time;
  guarded("test", metrics, time, [&] { time.advance(std::chrono::seconds(6)); });
  guarded("test", metrics, time, [&] { time.advance(std::chrono::seconds(1)); });
  CHECK(metrics.slow_tasks.value() == 1);
  CHECK(metrics.task_failures.value() == 0);
}
