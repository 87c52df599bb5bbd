#include "cli/version.hpp"

#include <cstdio>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <kvd_commit.hpp>  // written by cmake/commit.cmake

namespace kvd {

namespace {

constexpr const char* usage =
    "usage: kvd version [--json]\n\nPrints version, commit and compiler.\n";
// The client release whose wire the server role speaks.
constexpr const char* pegaflow_wire = "0.23.12";

}  // namespace

std::string describe_version(bool json) {
  if (!json) {
    return fmt::format("kvd {} ({}), {}, PegaFlow wire {}\n", KVD_VERSION, commit, compiler,
                       pegaflow_wire);
  }
  const boost::json::object facts{{"version", KVD_VERSION},
                                  {"commit", commit},
                                  {"compiler", compiler},
                                  {"wires", {{"pegaflow", pegaflow_wire}}},
                                  {"roles", {"server"}}};
  return boost::json::serialize(facts) + "\n";
}

int version(std::span<const std::string> arguments) {
  bool json = false;
  for (const auto& word : arguments) {
    if (word == "--json") {
      json = true;
    } else if (word == "--help" || word == "-h") {
      fmt::print("{}", usage);
      return 0;
    } else {
      fmt::print(stderr, "kvd version: unexpected argument '{}'\n{}", word, usage);
      return 2;
    }
  }
  fmt::print("{}", describe_version(json));
  return 0;
}

}  // namespace kvd
