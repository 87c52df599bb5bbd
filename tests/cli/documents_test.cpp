// The commented example and the page about configuration, held against the option table.

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "cli/config_file.hpp"
#include "cli/metaserver_options.hpp"
#include "cli/server_options.hpp"

namespace kvd {
namespace {

std::string read_document(const std::string& path) {
  std::ifstream file(std::string(KVD_SOURCE_DIR) + '/' + path);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The example with every `# key = value` line put into force.
std::string uncommented(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const auto end = line.find(" = ");
    const bool key = line.starts_with("# ") && end != std::string::npos &&
                     line.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", 2) == end;
    out += (key ? line.substr(2) : line) + '\n';
  }
  return out;
}

void check_example(std::span<const option> table, const std::string& role) {
  const auto path = role + ".toml";
  const auto text = read_document("configs/" + path);
  findings found;
  CHECK(settings_from_file(table, role, path, text, found).empty());
  const auto settings = settings_from_file(table, role, path, uncommented(text), found);
  CHECK(found.errors == std::vector<std::string>{});

  std::set<std::string> seen;
  for (const auto& s : settings) {
    CAPTURE(s.name);
    CHECK(seen.insert(s.name).second);
    const auto* spec = find_option(table, s.name);
    REQUIRE(spec != nullptr);
    const auto value = parse_option(*spec, s.values);
    REQUIRE(value);
    if (spec->fallback.empty()) continue;
    const std::vector<std::string> fallback{std::string(spec->fallback)};
    CHECK(*value == *parse_option(*spec, fallback));
  }
  for (const auto& spec : table) {
    CAPTURE(spec.name);
    CHECK((seen.count(std::string(spec.name)) == 1) == spec.in_file);
  }
}

void check_page(std::span<const option> table, const std::string& path) {
  const auto text = read_document(path);
  for (const auto& spec : table) {
    CAPTURE(spec.name);
    const auto flag = "\n| `--" + std::string(spec.name);
    auto at = text.find(flag + '`');
    if (at == std::string::npos) at = text.find(flag + ' ');
    REQUIRE(at != std::string::npos);
    const auto row = text.substr(at, text.find('\n', at + 1) - at);
    CHECK(row.find('`' + environment_name(spec.name) + '`') != std::string::npos);
    if (!spec.also_env.empty()) CHECK(row.find(spec.also_env) != std::string::npos);
    if (!spec.fallback.empty()) {
      CHECK(row.find("| " + std::string(spec.fallback) + " |") != std::string::npos);
    }
    if (!spec.refused.empty()) CHECK(row.find("refused") != std::string::npos);
  }
}

TEST_CASE("the commented example holds every option once, with its default, and nothing else") {
  check_example(server_option_table(), "server");
  check_example(metaserver_option_table(), "metaserver");
}

TEST_CASE("the page about configuration has a row for every option with its names and default") {
  check_page(server_option_table(), "docs/configuration.md");
  check_page(metaserver_option_table(), "docs/metaserver.md");
}

}  // namespace
}  // namespace kvd
