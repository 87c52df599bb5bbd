#include "cli/run.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/node.hpp"
#include "cli/command.hpp"
#include "cli/config_file.hpp"
#include "cli/metaserver_options.hpp"
#include "cli/role_plan.hpp"
#include "cli/roles.hpp"
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
                                    .help = "What this process does.",
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

// Options of both roles that mean the same for both.
constexpr std::string_view shared_options[] = {"config", "check-config", "log-level",
                                               "admin-token-file"};

bool is_shared(std::string_view name) {
  return std::ranges::find(shared_options, name) != std::end(shared_options);
}

struct split_arguments {
  std::vector<std::string> server;
  std::vector<std::string> metaserver;
  std::vector<std::string> errors;
};

// The option that a flag names: without dashes, value, and the `no-` of a switch.
std::string_view flag_name(std::string_view word, std::span<const option> table) {
  word.remove_prefix(2);
  word = word.substr(0, word.find('='));
  if (find_option(table, word) == nullptr && word.starts_with("no-")) word.remove_prefix(3);
  return word;
}

split_arguments split(std::span<const std::string> arguments) {
  constexpr std::string_view to_server = "--server.";
  constexpr std::string_view to_metaserver = "--metaserver.";
  split_arguments out;
  bool server = true;
  bool metaserver = false;
  for (auto word : arguments) {
    if (word.starts_with(to_server) || word.starts_with(to_metaserver)) {
      server = word.starts_with(to_server);
      metaserver = !server;
      word.replace(0, server ? to_server.size() : to_metaserver.size(), "--");
    } else if (word.starts_with("--")) {
      const auto here = flag_name(word, metaserver_option_table());
      metaserver = find_option(metaserver_option_table(), here) != nullptr;
      server = !metaserver || find_option(server_option_table(), here) != nullptr;
      if (server && metaserver && !is_shared(here)) {
        out.errors.push_back(fmt::format("--{0}: both roles have this option; say --server.{0} or "
                                         "--metaserver.{0}",
                                         here));
      }
    }
    // What is no flag is the value of the one before.
    if (server) out.server.push_back(word);
    if (metaserver) out.metaserver.push_back(word);
  }
  return out;
}

bool names_option(std::span<const option> table, const environment_variable& variable,
                  bool only_shared) {
  return std::ranges::any_of(table, [&](const option& spec) {
    return environment_name(spec.name) == variable.name && (!only_shared || is_shared(spec.name));
  });
}

void add_findings(findings& to, const findings& from, std::string_view role) {
  for (const auto& text : from.errors)
    to.errors.push_back(fmt::format("{}: {}", role, text));
  for (const auto& text : from.warnings)
    to.warnings.push_back(fmt::format("{}: {}", role, text));
}

int start_both(const both_plans& plans, const findings& found) {
  print_findings(found, "run");
  if (!found.errors.empty()) return exit_usage;
  if (plans.server.values.get<bool>("check-config")) {
    fmt::print("[server]\n{}\n[metaserver]\n{}", describe_effective(plans.server),
               describe_effective(plans.metaserver));
    return 0;
  }
  return run_process({.server = &plans.server.options, .metaserver = &plans.metaserver.options});
}

}  // namespace

both_plans plan_both(std::span<const std::string> arguments,
                     std::span<const environment_variable> environment, const file_reader& read) {
  const auto words = split(arguments);
  std::vector<environment_variable> for_server;
  std::vector<environment_variable> for_metaserver;
  for (const auto& each : environment) {
    const bool server = names_option(server_option_table(), each, false);
    const bool metaserver = names_option(metaserver_option_table(), each, server);
    // What means nothing to either is the server's to complain about.
    if (server || !metaserver) for_server.push_back(each);
    if (metaserver || !each.name.starts_with("KVD_")) for_metaserver.push_back(each);
  }
  both_plans out{plan_server(words.server, for_server, read),
                 plan_metaserver(words.metaserver, for_metaserver, read)};
  auto& errors = out.server.found.errors;
  errors.insert(errors.end(), words.errors.begin(), words.errors.end());
  for (const auto* ours : {"addr", "http-addr"}) {
    for (const auto* theirs : {"addr", "http-addr"}) {
      check_ports(out.server.values.at(ours), out.metaserver.values.at(theirs),
                  out.metaserver.found);
    }
  }
  return out;
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
  const auto values = resolve(roles_option, settings, found);
  const auto roles = values.get<std::vector<std::string>>("roles");
  const auto has = [&roles](std::string_view role) {
    return std::ranges::find(roles, role) != roles.end();
  };
  if (has("server") && has("metaserver")) {
    const auto plans = plan_both(rest, environment, read_text_file);
    add_findings(found, plans.server.found, "server");
    add_findings(found, plans.metaserver.found, "metaserver");
    return start_both(plans, found);
  }
  const auto with_errors = [&found](auto plan) {
    auto& errors = plan.found.errors;
    errors.insert(errors.begin(), found.errors.begin(), found.errors.end());
    return plan;
  };
  if (has("metaserver")) {
    return start_metaserver(with_errors(plan_metaserver(rest, environment, read_text_file)));
  }
  return start_server(with_errors(plan_server(rest, environment, read_text_file)));
}

std::string run_help() {
  return fmt::format("usage: kvd run [--roles ROLE[,ROLE...]] [OPTION...]\n"
                     "\n"
                     "Runs several roles in one process: {}. The options of each are those of its\n"
                     "own command, as in `kvd help server`. With several roles, an option that "
                     "more than one\nhas is named with its role: --metaserver.addr.\n{}",
                     fmt::join(landed_roles, ", "), describe_options(roles_option));
}

}  // namespace kvd
