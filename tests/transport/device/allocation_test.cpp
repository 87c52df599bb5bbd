// Counts every allocation of this executable, on any thread.

#include <atomic>
#include <cstdlib>
#include <new>

#include <doctest/doctest.h>

#include "tests/transport/device/tracked_job.hpp"
#include "transport/device/host_device.hpp"

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

TEST_CASE("planning, submitting, copying and ending a warmed-up job allocate nothing") {
  using namespace kvd;
  fake_clock time;
  copy_metrics metrics;
  host_device device({.threads = 2, .jobs_max = 16, .numa_node = -1}, time, metrics);
  std::vector<std::byte> from(4 << 20);
  std::vector<std::byte> to(4 << 20);
  test::tracked_job job;
  job.job.ranges.reserve(1024);
  const auto round = [&] {
    job.job.ranges.clear();
    for (std::size_t i = 0; i < 1024; ++i) {
      const auto at = (i * 37 % 1024) * 4096;
      job.job.ranges.push_back({to.data() + at, from.data() + at, 2048});
    }
    plan_copies(job.job);
    return device.submit(job.job) && job.wait() == copy_outcome::done;
  };
  REQUIRE(round());
  const auto before = allocations.load();
  bool ok = true;
  for (int i = 0; i < 50; ++i) {
    ok = round() && ok;
  }
  const auto after = allocations.load();
  CHECK(ok);
  CHECK(after == before);
  CHECK(before > 0);  // the counter counts
}
