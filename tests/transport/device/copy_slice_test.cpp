#include "transport/device/copy_slice.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/random.hpp"
#include "tests/transport/device/shm_fixture.hpp"
#include "tests/transport/device/tracked_job.hpp"
#include "transport/device/host_device.hpp"

using namespace kvd;
using kvd::test::shm_fixture;
using kvd::test::tracked_job;

namespace {

constexpr std::uint64_t object_mib = 1 << 20;

bool copy_one(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const copy_range range{to, from, bytes};
  return copy_bytes({std::span(&range, 1), 0, bytes});
}

// Runs `body` in a child process and returns its wait status.
template<class Body>
int in_child(Body body) {
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("slices of any size and alignment are copied exactly") {
  install_fault_guard();
  seeded_random random(3);
  std::vector<std::byte> from(300 << 10);
  random.fill(from);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::byte> to(from.size(), std::byte{0xEE});
    const auto bytes = random.below(round % 4 == 0 ? from.size() : 20 << 10);
    const auto at = random.below(from.size() - bytes + 1);
    const auto shift = random.below(from.size() - bytes + 1);
    auto expected = to;
    std::memcpy(expected.data() + at, from.data() + shift, bytes);
    CHECK(copy_one(to.data() + at, from.data() + shift, bytes));
    CHECK(to == expected);
  }
}

TEST_CASE("a slice begins inside its first range and ends inside its last") {
  install_fault_guard();
  std::vector<std::byte> from(96);
  seeded_random(1).fill(from);
  std::vector<std::byte> to(96);
  const copy_range ranges[] = {
      {&to[0], &from[0], 32}, {&to[32], &from[32], 32}, {&to[64], &from[64], 32}};
  CHECK(copy_bytes({ranges, 30, 40}));
  std::vector<std::byte> expected(96);
  std::copy(from.begin() + 30, from.begin() + 70, expected.begin() + 30);
  CHECK(to == expected);
}

TEST_CASE("copying from memory that its owner truncated fails and leaves the process alive") {
  install_fault_guard();
  shm_fixture object(4 * object_mib);
  std::vector<std::byte> pool(4 * object_mib);
  std::memset(object.data(), 1, 4 * object_mib);
  object.resize(object_mib);
  CHECK_FALSE(copy_one(pool.data(), object.data(), 4 * object_mib));
  CHECK_FALSE(copy_one(pool.data(), object.data() + 2 * object_mib, 64));
  CHECK(copy_one(pool.data(), object.data(), object_mib));
}

TEST_CASE("copying to memory that its owner truncated fails and leaves the process alive") {
  install_fault_guard();
  shm_fixture object(4 * object_mib);
  const std::vector<std::byte> pool(4 * object_mib, std::byte{7});
  object.resize(4096);
  CHECK_FALSE(copy_one(object.data(), pool.data(), 4 * object_mib));
  CHECK_FALSE(copy_one(object.data() + object_mib, pool.data(), 8));
  object.resize(4 * object_mib);
  CHECK(copy_one(object.data(), pool.data(), 4 * object_mib));
}

TEST_CASE("an object truncated between two chunks fails the job, and the device goes on") {
  fake_clock time;
  copy_metrics metrics;
  host_device device({.threads = 2, .jobs_max = 16, .numa_node = -1}, time, metrics);
  shm_fixture object(16 * object_mib);
  std::vector<std::byte> pool(16 * object_mib);
  tracked_job job(copy_direction::save, pool.data(), object.data(), 16 * object_mib);
  std::atomic<int> chunks{0};
  job.before_chunk = [&] {
    if (chunks.fetch_add(1) == 2) object.resize(4096);
    return false;
  };
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::failed);
  object.resize(16 * object_mib);
  job.before_chunk = nullptr;
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::done);
}

TEST_CASE("an object truncated again and again in the middle of copies never ends the process") {
  fake_clock time;
  copy_metrics metrics;
  host_device device({.threads = 2, .jobs_max = 16, .numa_node = -1}, time, metrics);
  shm_fixture object(8 * object_mib);
  std::vector<std::byte> pool(8 * object_mib);
  std::atomic<bool> over{false};
  std::thread owner([&] {
    while (!over) {
      object.resize(4096);
      object.resize(8 * object_mib);
    }
  });
  int failed = 0;
  for (int i = 0; i < 200 && failed < 20; ++i) {
    const bool save = i % 2 == 0;
    tracked_job job(save ? copy_direction::save : copy_direction::load,
                    save ? pool.data() : object.data(), save ? object.data() : pool.data(),
                    8 * object_mib);
    REQUIRE(device.submit(job.job));
    const auto outcome = job.wait();
    CHECK(outcome != copy_outcome::cancelled);
    if (outcome == copy_outcome::failed) ++failed;
  }
  over = true;
  owner.join();
}

TEST_CASE("a bus error outside of a copy goes to the handler that was there before") {
  shm_fixture object(8192);
  const auto status = in_child([&object] {
    ::signal(SIGBUS, [](int) { ::_exit(42); });
    install_fault_guard();
    object.resize(0);
    *const_cast<volatile std::byte*>(object.data()) = std::byte{1};
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 42);
}

TEST_CASE("a bus error that nobody handles ends the process as it always did") {
  shm_fixture object(8192);
  const auto status = in_child([&object] {
    ::signal(SIGBUS, SIG_DFL);
    install_fault_guard();
    object.resize(0);
    *const_cast<volatile std::byte*>(object.data()) = std::byte{1};
  });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGBUS);
}
