#include "memory/numa.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace kvd;

TEST_CASE("this machine has a node with memory and processors") {
  const auto nodes = system_numa_nodes();
  const auto ids = nodes->with_memory();
  REQUIRE(!ids.empty());
  CHECK(std::is_sorted(ids.begin(), ids.end()));
  unsigned cpus = 0;
  for (const auto id : ids)
    cpus += nodes->cpus_of(id);
  CHECK(cpus > 0);
  CHECK(nodes->cpus_of(100000) == 0);
}

TEST_CASE("a thread can be kept on a node that has processors") {
  const auto nodes = system_numa_nodes();
  for (const auto id : nodes->with_memory()) {
    if (nodes->cpus_of(id) == 0) continue;
    bool ok = false;
    std::thread([&] { ok = nodes->run_here(id).has_value(); }).join();
    CHECK(ok);
  }
}

TEST_CASE("memory prefers a node, and a range that is not page-aligned is an error that names it") {
  const auto nodes = system_numa_nodes();
  const auto id = nodes->with_memory().front();
  auto* const at = static_cast<std::byte*>(std::aligned_alloc(4096, 8192));
  CHECK(nodes->prefer_memory(at, 8192, id).has_value());
  const auto refused = nodes->prefer_memory(at + 1, 4096, id);
  if (!refused) {  // a kernel without NUMA support ignores the call
    CHECK(refused.error().code == errc::io);
    CHECK(refused.error().detail.find("NUMA node") != std::string::npos);
  }
  std::free(at);
}

// libnuma fills a table at the first such call; ThreadSanitizer saw two threads do it at once.
TEST_CASE("threads may ask for a node's processors, and settle there, all at once") {
  const auto nodes = system_numa_nodes();
  const auto id = nodes->with_memory().front();
  std::vector<unsigned> counts(4);
  std::vector<std::thread> threads;
  for (auto& count : counts) {
    threads.emplace_back([&] {
      if (nodes->run_here(id)) count = nodes->cpus_of(id);
    });
  }
  for (auto& thread : threads)
    thread.join();
  for (const auto count : counts)
    CHECK(count == nodes->cpus_of(id));
}
