#include "cli/version.hpp"

#include <cstdio>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <kvd_commit.hpp>  // written by cmake/commit.cmake

#include "cli/command.hpp"

namespace kvd {

namespace {

constexpr const char* version_usage =
    "usage: kvd version [--json]\n\nPrints version, commit and compiler.\n";
// The client release whose wire the server role speaks.
constexpr const char* pegaflow_wire = "0.23.12";

}  // namespace

std::string describe_version(bool as_json) {
  if (!as_json) {
    return fmt::format("kvd {} ({}), {}, PegaFlow wire {}\n", KVD_VERSION, build_commit,
                       build_compiler, pegaflow_wire);
  }
  const boost::json::object facts{{"version", KVD_VERSION},
                                  {"commit", build_commit},
                                  {"compiler", build_compiler},
                                  {"wires", {{"pegaflow", pegaflow_wire}}},
                                  {"roles", {"server"}}};
  return boost::json::serialize(facts) + "\n";
}

int version(std::span<const std::string> arguments) {
  bool as_json = false;
  for (const auto& word : arguments) {
    if (word == "--json") {
      as_json = true;
    } else if (word == "--help" || word == "-h") {
      fmt::print("{}", version_usage);
      return 0;
    } else {
      fmt::print(stderr, "kvd version: unexpected argument '{}'\n{}", word, version_usage);
      return exit_usage;
    }
  }
  fmt::print("{}", describe_version(as_json));
  return 0;
}

}  // namespace kvd
