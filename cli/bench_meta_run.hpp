#pragma once
// The measuring behind `kvd bench meta`: load, queries by several clients, a removal meanwhile; one
// metaserver, or two in turns. One thread calls, others are started and joined inside.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace kvd {

struct meta_plan {
  std::uint64_t blocks = 0;
  std::uint64_t node_blocks = 0;
  std::uint64_t batch = 0;
  std::uint64_t hashes = 0;
  std::vector<std::size_t> clients;
  std::size_t removal_clients = 1;  // that ask while a node is removed
  std::uint64_t rounds = 0;
  double seconds = 0;
  bool json = false;
  bool quiet = false;
};

struct query_row {
  std::size_t clients = 0;
  std::uint64_t queries = 0;
  double seconds = 0;
  samples ms;
  double rate() const { return seconds > 0 ? static_cast<double>(queries) / seconds : 0; }
};

// One metaserver under measurement, and what was found.
struct meta_subject {
  std::string name;
  std::string address;
  long pid = 0;
  double insert_seconds = 0;
  std::uint64_t inserted = 0;
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
  std::vector<query_row> rows;
  query_row removal;
  double unregister_ms = 0;
  std::uint64_t removed = 0;

  double insert_rate() const {
    return insert_seconds > 0 ? static_cast<double>(inserted) / insert_seconds : 0;
  }
  double bytes_an_entry() const {
    if (pid == 0 || inserted == 0 || bytes_after < bytes_before) return 0;
    return static_cast<double>(bytes_after - bytes_before) / static_cast<double>(inserted);
  }
};

// Errors are those of the metaserver, or errc::internal for a wrong answer.
result<void> measure_metaservers(const meta_plan& plan, const clock& time,
                                 std::vector<meta_subject>& subjects);

// Nodes that the plan's blocks are spread over.
std::size_t meta_node_count(const meta_plan& plan) noexcept;

}  // namespace kvd
