#pragma once
// A directory with a clock of its own, and hashes and sessions as requests carry them.

#include <deque>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "memory/directory_store.hpp"

namespace kvd::test {

// Hashes and the pointers to them, as a request has them.
struct hash_set {
  std::vector<std::string> texts;
  std::vector<const std::string*> pointers;
  explicit hash_set(std::vector<std::string> from) : texts(std::move(from)) {
    for (const auto& each : texts)
      pointers.push_back(&each);
  }
  operator block_hashes() const { return pointers; }
};

inline hash_set hashes(int first, int count) {
  std::vector<std::string> out;
  for (int i = first; i < first + count; ++i)
    out.push_back(fmt::format("hash-{:08}", i));
  return hash_set(std::move(out));
}

inline std::string uuid_text(int n) {
  return fmt::format("67e55044-10b1-426f-9247-{:012x}", n);
}

struct directory_fixture {
  fake_clock time;
  directory_store store{{.owners_max = 100'000, .id = "d1"}, time};

  node_session node(int n, int run = 0) {
    names.push_back(fmt::format("10.0.0.{}:50055", n));
    ids.push_back(uuid_text(n * 1000 + run));
    return {names.back(), ids.back()};
  }
  node_session alive(int n, int run = 0) {
    const auto session = node(n, run);
    REQUIRE(store.heartbeat(session));
    return session;
  }
  // Prefix lengths by the number of the node.
  std::map<int, std::uint32_t> prefixes(const hash_set& asked, std::string_view in = "ns") {
    std::map<int, std::uint32_t> out;
    const auto found = store.query_prefix(in, asked);
    REQUIRE(found);
    for (const auto& each : *found)
      out[std::stoi(each.node.substr(7))] = each.length;
    return out;
  }
  void run_upkeep() {
    while (store.upkeep()) {
    }
  }
  void sweep() {
    store.begin_sweep();
    run_upkeep();
  }

  std::deque<std::string> names;
  std::deque<std::string> ids;
};

}  // namespace kvd::test
