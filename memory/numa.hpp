#pragma once
// NUMA nodes of the machine, behind a seam: tests invent topologies, one node is the simple case.
//
// Only numa.cpp knows libnuma. Any thread. Sizes are bytes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.hpp"

namespace kvd {

class numa_nodes {
public:
  virtual ~numa_nodes() = default;

  // Nodes that have memory this process may use, ascending; never empty.
  virtual std::vector<int> with_memory() const = 0;
  // Processors of a node that this process may use; 0 for a node of memory only.
  virtual unsigned cpus_of(int node) const = 0;
  // Wants pages of [at, at + bytes) from `node` from now on; when it has none left the kernel takes
  // them from the others. REQUIRES: page-aligned.
  virtual result<void> prefer_memory(std::byte* at, std::size_t bytes, int node) = 0;
  // Keeps the calling thread on the node's processors.
  virtual result<void> run_here(int node) = 0;
};

// The machine's own; without NUMA support in the kernel, one node 0.
std::unique_ptr<numa_nodes> system_numa_nodes();

}  // namespace kvd
