#include "transport/device/inline_device.hpp"

#include <doctest/doctest.h>

#include "tests/transport/device/tracked_job.hpp"

using namespace kvd;
using kvd::test::tracked_job;

namespace {

struct inline_fixture {
  fake_clock time;
  copy_metrics metrics;
  std::byte from[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  std::byte to[4] = {};
};

}  // namespace

TEST_CASE("nothing is copied before the device is told to") {
  inline_fixture f;
  inline_device device(8, f.time, f.metrics);
  tracked_job job(copy_direction::save, f.to, f.from, 4);
  REQUIRE(device.submit(job.job));
  CHECK(f.to[0] == std::byte{0});
  CHECK(f.metrics.save_queue.value() == 1);
  CHECK(device.run_one());
  CHECK(f.to[3] == std::byte{4});
  CHECK(job.ends == 1);
  CHECK(job.outcome == copy_outcome::done);
  CHECK(f.metrics.save_queue.value() == 0);
  CHECK_FALSE(device.run_one());
}

TEST_CASE("jobs end as the script says, in the order that it makes") {
  inline_fixture f;
  inline_device device(8, f.time, f.metrics);
  std::string order;
  tracked_job jobs[3];
  for (int i = 0; i < 3; ++i) {
    jobs[i].job.ranges.push_back({f.to + i, f.from + i, 1});
    jobs[i].at_end = [&order, i] { order += static_cast<char>('a' + i); };
    REQUIRE(device.submit(jobs[i].job));
  }
  device.script(copy_script::postpone);
  device.script(copy_script::cancel);
  device.script(copy_script::fail);
  while (device.run_one()) {
  }
  CHECK(order == "bca");
  CHECK(jobs[0].outcome == copy_outcome::done);
  CHECK(jobs[1].outcome == copy_outcome::cancelled);
  CHECK(jobs[2].outcome == copy_outcome::failed);
  CHECK(f.to[0] == std::byte{1});
  CHECK(f.to[1] == std::byte{0});
}

TEST_CASE("any queued job may be picked") {
  inline_fixture f;
  inline_device device(8, f.time, f.metrics);
  tracked_job first(copy_direction::load, f.to, f.from, 1);
  tracked_job second(copy_direction::load, f.to + 1, f.from + 1, 1);
  REQUIRE(device.submit(first.job));
  REQUIRE(device.submit(second.job));
  device.run(1);
  CHECK(second.ends == 1);
  CHECK(first.ends == 0);
  CHECK(device.queued() == 1);
  device.run(0);
}

TEST_CASE("an inline job heeds its deadline and its owner") {
  inline_fixture f;
  inline_device device(8, f.time, f.metrics);
  tracked_job late(copy_direction::load, f.to, f.from, 1);
  late.job.deadline = f.time.now();
  tracked_job unwanted(copy_direction::load, f.to, f.from, 1);
  unwanted.before_chunk = [] { return true; };
  REQUIRE(device.submit(late.job));
  REQUIRE(device.submit(unwanted.job));
  device.run_one();
  device.run_one();
  CHECK(late.outcome == copy_outcome::cancelled);
  CHECK(unwanted.outcome == copy_outcome::cancelled);
  CHECK(f.to[0] == std::byte{0});
}

TEST_CASE("an inline device refuses what its queue cannot hold and cancels what is left") {
  inline_fixture f;
  tracked_job jobs[3];
  {
    inline_device device(2, f.time, f.metrics);
    CHECK(device.submit(jobs[0].job));
    CHECK(device.submit(jobs[1].job));
    CHECK_FALSE(device.submit(jobs[2].job));
  }
  CHECK(jobs[0].outcome == copy_outcome::cancelled);
  CHECK(jobs[1].outcome == copy_outcome::cancelled);
  CHECK(jobs[2].ends == 0);
}
