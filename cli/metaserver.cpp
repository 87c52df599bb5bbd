#include "cli/metaserver.hpp"

#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/node.hpp"
#include "cli/command.hpp"
#include "cli/metaserver_options.hpp"
#include "cli/role_plan.hpp"

namespace kvd {

namespace {

void check_times(const resolution& v, const metaserver_options& options, findings& found) {
  if (options.ttl >= options.node_stale) return;
  found.errors.push_back(fmt::format("{}: {} minutes must be at least {} of {}",
                                     v.at("ttl-minutes").source, v.at("ttl-minutes").text,
                                     v.at("node-stale-secs").text, v.at("node-stale-secs").source));
}

}  // namespace

metaserver_plan plan_metaserver(std::span<const std::string> arguments,
                                std::span<const environment_variable> environment,
                                const file_reader& read) {
  const auto table = metaserver_option_table();
  findings found;
  auto settings = settings_from_arguments(table, arguments, found);
  auto more = settings_from_environment(table, environment, found);
  std::move(more.begin(), more.end(), std::back_inserter(settings));
  add_file_settings(table, "metaserver", read, settings, found);

  auto values = resolve(table, settings, found);
  auto options = fill_metaserver_options(values);
  options.admin_token = read_token(values.at("admin-token-file"), read, found);
  options.effective_json = effective_json(values);
  check_ports(values.at("addr"), values.at("http-addr"), found);
  check_times(values, options, found);
  return {std::move(options), std::move(values), std::move(found)};
}

std::string describe_effective(const metaserver_plan& plan) {
  return describe_values(plan.values, !plan.options.admin_token.empty());
}

int start_metaserver(const metaserver_plan& plan) {
  print_findings(plan.found, "metaserver");
  if (!plan.found.errors.empty()) return exit_usage;
  if (plan.values.get<bool>("check-config")) {
    fmt::print("{}", describe_effective(plan));
    return 0;
  }
  return run_process({.metaserver = &plan.options});
}

int metaserver(std::span<const std::string> arguments) {
  return start_metaserver(plan_metaserver(arguments, process_environment(), read_text_file));
}

std::string metaserver_help() {
  return fmt::format(
      "usage: kvd metaserver [OPTION...]\n"
      "\n"
      "Knows which node holds which block, for PegaFlow's servers and for kvd's. Everything is in\n"
      "memory: after a restart kvd's servers tell it again within seconds.\n"
      "\n"
      "An option comes from its flag, else from the environment (KVD_TTL_MINUTES for\n"
      "--ttl-minutes), else from the file that --config names (ttl-minutes under [metaserver]), "
      "else\n"
      "from its default. Time is in seconds or with a unit: 90, 10s, 5m, 2h, 1d. --help prints "
      "this.\n"
      "{}",
      describe_options(metaserver_option_table()));
}

}  // namespace kvd
