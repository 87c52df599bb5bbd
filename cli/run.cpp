#include "cli/run.hpp"

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/node.hpp"
#include "cli/config_file.hpp"
#include "cli/roles.hpp"
#include "cli/server.hpp"
#include "cli/server_options.hpp"
#include "cli/settings.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

result<std::string> parse_role(std::string_view text) {
  for (const auto role : landed_roles) {
    if (role == text) return std::string(role);
  }
  for (const auto role : later_roles) {
    if (role != text) continue;
    return fail(errc::invalid_argument,
                fmt::format("the role {} has not landed in this version; there is today: {}", role,
                            fmt::join(landed_roles, ", ")));
  }
  return fail(errc::invalid_argument,
              fmt::format("{} is no role{}; there is today: {}", in_quotes(text),
                          did_you_mean(text, landed_roles, "", ""), fmt::join(landed_roles, ", ")));
}

constexpr option roles_option[] = {{.name = "roles",
                                    .kind = option_kind::list,
                                    .fallback = "server",
                                    .value = "ROLE[,ROLE...]",
                                    .group = "Roles",
                                    .help = "What this process does. Today there is one role.",
                                    .parse = parse_role}};
constexpr std::string_view roles_flag = "--roles";

// Takes --roles and its values out of the arguments; the rest is for the roles' own tables.
std::vector<std::string> take_roles(std::span<const std::string> all,
                                    std::vector<std::string>& rest) {
  std::vector<std::string> mine;
  bool taking = false;
  for (const auto& word : all) {
    const bool flag = word.starts_with("--");
    if (flag) taking = word == roles_flag || word.starts_with(std::string(roles_flag) + '=');
    (taking ? mine : rest).push_back(word);
  }
  return mine;
}

}  // namespace

int run_roles(const server_options& options) {
  return run_server(options);
}

int run(std::span<const std::string> arguments) {
  std::vector<std::string> rest;
  const auto mine = take_roles(arguments, rest);
  findings found;
  auto settings = settings_from_arguments(roles_option, mine, found);
  const auto environment = process_environment();
  for (const auto& variable : environment) {
    if (variable.name != environment_name(roles_option->name) || variable.value.empty()) continue;
    settings.push_back({option_layer::environment,
                        std::string(roles_option->name),
                        fmt::format("environment {}", variable.name),
                        {variable.value}});
  }
  // One role has landed: resolving is validating.
  resolve(roles_option, settings, found);

  auto plan = plan_server(rest, environment, read_text_file);
  auto& errors = plan.found.errors;
  errors.insert(errors.begin(), std::make_move_iterator(found.errors.begin()),
                std::make_move_iterator(found.errors.end()));
  return start_server(plan);
}

std::string run_help() {
  return fmt::format("usage: kvd run [--roles ROLE[,ROLE...]] [OPTION...]\n"
                     "\n"
                     "Runs several roles in one process. The options of each role are those of its "
                     "own command:\n`kvd help server`.\n{}",
                     describe_options(roles_option));
}

}  // namespace kvd
