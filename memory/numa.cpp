#include "memory/numa.hpp"

#include <cerrno>
#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <numa.h>
#include <numaif.h>

namespace kvd {

namespace {

error refused(std::string_view what, int node) {
  return {errc::io, fmt::format("{} of NUMA node {}: {}", what, node,
                                std::generic_category().message(errno))};
}

struct free_bitmask {
  void operator()(bitmask* mask) const { numa_bitmask_free(mask); }
};
using owned_bitmask = std::unique_ptr<bitmask, free_bitmask>;

// libnuma fills its table of each node's processors at the first call that needs it, without a lock
// of its own; touch threads begin with just such calls.
std::mutex node_to_cpus_mutex;

class libnuma_nodes final : public numa_nodes {
public:
  std::vector<int> with_memory() const override {
    const owned_bitmask allowed(numa_get_mems_allowed());
    std::vector<int> nodes;
    for (int node = 0; node <= numa_max_node(); ++node) {
      const bool may = numa_bitmask_isbitset(allowed.get(), static_cast<unsigned>(node)) != 0;
      if (may && numa_node_size64(node, nullptr) > 0) nodes.push_back(node);
    }
    if (nodes.empty()) nodes.push_back(0);
    return nodes;
  }

  unsigned cpus_of(int node) const override {
    const owned_bitmask cpus(numa_allocate_cpumask());
    const std::lock_guard lock(node_to_cpus_mutex);
    if (numa_node_to_cpus(node, cpus.get()) != 0) return 0;
    unsigned count = 0;
    for (unsigned long cpu = 0; cpu < cpus->size; ++cpu) {
      const auto at = static_cast<unsigned>(cpu);
      if (numa_bitmask_isbitset(cpus.get(), at) && numa_bitmask_isbitset(numa_all_cpus_ptr, at)) {
        ++count;
      }
    }
    return count;
  }

  // mbind itself: libnuma's wrapper prints to stderr and hides the error.
  result<void> prefer_memory(std::byte* at, std::size_t bytes, int node) override {
    const owned_bitmask only(numa_allocate_nodemask());
    numa_bitmask_setbit(only.get(), static_cast<unsigned>(node));
    if (::mbind(at, bytes, MPOL_PREFERRED, only->maskp, only->size + 1, 0) != 0) {
      return tl::unexpected(refused("cannot bind memory to that", node));
    }
    return {};
  }

  result<void> run_here(int node) override {
    const std::lock_guard lock(node_to_cpus_mutex);
    if (numa_run_on_node(node) != 0) {
      return tl::unexpected(refused("cannot run on the processors", node));
    }
    return {};
  }
};

class one_node final : public numa_nodes {
public:
  std::vector<int> with_memory() const override { return {0}; }
  unsigned cpus_of(int) const override { return std::thread::hardware_concurrency(); }
  result<void> prefer_memory(std::byte*, std::size_t, int) override { return {}; }
  result<void> run_here(int) override { return {}; }
};

}  // namespace

std::unique_ptr<numa_nodes> system_numa_nodes() {
  if (numa_available() < 0) return std::make_unique<one_node>();
  return std::make_unique<libnuma_nodes>();
}

}  // namespace kvd
