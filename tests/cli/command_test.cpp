#include "cli/command.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <doctest/doctest.h>

#include "cli/version.hpp"

namespace kvd {
namespace {

int run_words(const std::vector<std::string>& words) {
  return dispatch(words);
}

TEST_CASE("help and version succeed, in every spelling") {
  for (const auto& words : std::vector<std::vector<std::string>>{{"--help"},
                                                                 {"-h"},
                                                                 {"help"},
                                                                 {"help", "server"},
                                                                 {"server", "--help"},
                                                                 {"server", "-h"},
                                                                 {"help", "run"},
                                                                 {"version"},
                                                                 {"version", "--json"},
                                                                 {"--version"},
                                                                 {"help", "version"}}) {
    CAPTURE(words);
    CHECK(run_words(words) == 0);
  }
}

TEST_CASE("what names no command, or one that has not landed, ends with status 2") {
  for (const auto& words : std::vector<std::vector<std::string>>{{},
                                                                 {"servr"},
                                                                 {"bench"},
                                                                 {"bench", "polcy"},
                                                                 {"bench", "--help"},
                                                                 {"router"},
                                                                 {"help", "router"},
                                                                 {"help", "nothing"},
                                                                 {"version", "--jsn"},
                                                                 {""},
                                                                 {"run", "--roles", "router"},
                                                                 {"run", "--roles"},
                                                                 {"run", "--roles=serve,server"}}) {
    CAPTURE(words);
    CHECK(run_words(words) == exit_usage);
  }
}

TEST_CASE("run takes the options of its roles beside --roles") {
  CHECK(run_words({"run", "--roles", "server", "--pool-size", "1gb", "--check-config"}) == 0);
  CHECK(run_words({"run", "--check-config"}) == 0);
  CHECK(run_words({"run", "--check-config", "--roles=server", "--pool-size", "-1"}) == exit_usage);
  CHECK(run_words({"run", "--check-config", "--roles=metaserver", "--ttl-minutes=5"}) == 0);
  CHECK(run_words({"run", "--check-config", "--roles=server,metaserver", "--max-entries", "1000",
                   "--pool-size", "1gb", "--metaserver.addr", "[::1]:0"}) == 0);
  CHECK(run_words({"run", "--check-config", "--roles=server,metaserver", "--addr", "h:1"}) ==
        exit_usage);
}

TEST_CASE("every command has a name of one or two words and a summary") {
  const auto table = command_table();
  for (const auto& c : table) {
    CAPTURE(c.name);
    CHECK(std::count(c.name.begin(), c.name.end(), ' ') <= 1);
    CHECK_FALSE(c.summary.empty());
    CHECK(std::count_if(table.begin(), table.end(),
                        [&c](const command& other) { return other.name == c.name; }) == 1);
  }
}

TEST_CASE("the version as JSON names version, commit and wire") {
  const auto facts = boost::json::parse(describe_version(true));
  CHECK(facts.at("version") == KVD_VERSION);
  CHECK_FALSE(facts.at("commit").as_string().empty());
  CHECK(facts.at("wires").at("pegaflow") == "0.23.12");
}

}  // namespace
}  // namespace kvd
