#include "cli/server.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/node.hpp"
#include "cli/command.hpp"
#include "cli/role_plan.hpp"
#include "cli/server_options.hpp"
#include "core/address.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

void check_eviction(const resolution& v, findings& found) {
  const auto& policy = v.at("eviction-policy");
  if (v.get<bool>("enable-lfu-admission") && policy.given() && policy.text != "tinylfu") {
    found.errors.push_back(
        fmt::format("{}: contradicts {}, which selects tinylfu; give one of them", policy.source,
                    v.at("enable-lfu-admission").source));
  }
}

void check_memory(const resolution& v, findings& found) {
  const auto& hint = v.at("hint-value-size");
  const auto pool = v.get<std::uint64_t>("pool-size");
  if (v.get<std::uint64_t>("hint-value-size") > pool) {
    found.errors.push_back(fmt::format("{}: {} is more than the whole pool, {} ({})", hint.source,
                                       hint.text, v.at("pool-size").text,
                                       v.at("pool-size").source));
  }
}

// Options that do nothing without another one, and PegaFlow's two warnings about peers. `mentioned`
// holds what any layer names, refused options included.
void warn_of_combinations(const resolution& v, std::span<const setting> settings, findings& found) {
  const auto mentioned = [settings](std::string_view name) {
    return std::any_of(settings.begin(), settings.end(),
                       [name](const setting& s) { return s.name == name; });
  };
  const auto warn = [&found](std::string text) { found.warnings.push_back(std::move(text)); };
  const auto useless = [&](std::string_view name, std::string_view without) {
    if (v.given(name) && !mentioned(without)) {
      warn(fmt::format("{}: has no effect without --{}", v.at(name).source, without));
    }
  };
  useless("metrics-period-secs", "metrics-otel-endpoint");
  for (const auto name : {"ssd-cache-capacity", "ssd-cache-shards", "ssd-write-queue-depth",
                          "ssd-prefetch-queue-depth", "ssd-write-inflight", "ssd-prefetch-inflight",
                          "max-prefetch-blocks", "ssd-sync", "ssd-min-free", "ssd-wipe"}) {
    useless(name, "ssd-cache-path");
  }
  for (const auto name : {"metaserver-queue-depth", "qps-per-peer", "transfer-lock-timeout-secs",
                          "nics", "advertise-addr", "peer-addr", "peer-links"}) {
    useless(name, "metaserver-addr");
  }
  if (v.given("devices")) {
    warn(fmt::format("{}: has no effect, this version copies to and from host memory only",
                     v.at("devices").source));
  }
  if (v.given("trace-sample-rate")) {
    warn(fmt::format("{}: has no effect, this version has no tracing",
                     v.at("trace-sample-rate").source));
  }
  const auto addr = parse_address(v.at("addr").text);
  const bool shares = mentioned("metaserver-addr") && !v.given("advertise-addr");
  if (shares && addr && (addr->is_loopback() || addr->is_unspecified())) {
    warn(fmt::format("{}: other nodes cannot reach {}; give --advertise-addr or a routable --addr",
                     v.at("addr").source, v.at("addr").text));
  }
}

// A port that the system picks is not known before others are told of it.
void check_sharing(const resolution& v, findings& found) {
  if (!v.given("metaserver-addr") || v.given("advertise-addr")) return;
  const auto addr = parse_address(v.at("addr").text);
  if (!addr || addr->port != 0) return;
  found.errors.push_back(fmt::format("{}: {} has no port that other nodes could be told; give one, "
                                     "or --advertise-addr",
                                     v.at("addr").source, v.at("addr").text));
}

void round_pool(const resolution& v, server_options& out, findings& found) {
  const auto asked = out.pool_bytes;
  out.pool_bytes -= asked % limits::pool_unit_bytes;
  if (out.pool_bytes != asked) {
    found.warnings.push_back(fmt::format("{}: {} rounded down to {}, a multiple of {} bytes",
                                         v.at("pool-size").source, v.at("pool-size").text,
                                         format_bytes(out.pool_bytes), limits::pool_unit_bytes));
  }
}

}  // namespace

server_plan plan_server(std::span<const std::string> arguments,
                        std::span<const environment_variable> environment,
                        const file_reader& read) {
  const auto table = server_option_table();
  findings found;
  auto settings = settings_from_arguments(table, arguments, found);
  auto more = settings_from_environment(table, environment, found);
  std::move(more.begin(), more.end(), std::back_inserter(settings));
  add_file_settings(table, "server", read, settings, found);

  auto values = resolve(table, settings, found);
  auto options = fill_server_options(values);
  options.admin_token = read_token(values.at("admin-token-file"), read, found);
  round_pool(values, options, found);
  check_memory(values, found);
  check_sharing(values, found);
  check_eviction(values, found);
  check_ports(values.at("addr"), values.at("http-addr"), found);
  warn_of_combinations(values, settings, found);
  server_plan plan{std::move(options), std::move(values), std::move(found)};
  plan.options.effective_json = effective_json(plan.values);
  return plan;
}

std::string describe_effective(const server_plan& plan) {
  return describe_values(plan.values, !plan.options.admin_token.empty());
}

int start_server(const server_plan& plan) {
  print_findings(plan.found, "server");
  if (!plan.found.errors.empty()) return exit_usage;
  if (plan.values.get<bool>("check-config")) {
    fmt::print("{}", describe_effective(plan));
    return 0;
  }
  return run_process({.server = &plan.options});
}

int server(std::span<const std::string> arguments) {
  return start_server(plan_server(arguments, process_environment(), read_text_file));
}

std::string server_help() {
  return fmt::format(
      "usage: kvd server [OPTION...]\n"
      "\n"
      "Keeps KV-cache blocks of the engines on this host in pinned memory (PegaFlow's gRPC wire).\n"
      "\n"
      "An option comes from its flag, else from the environment (KVD_POOL_SIZE for --pool-size),\n"
      "else from the file that --config names (pool-size under [server]), else from its default.\n"
      "Sizes count in steps of 1024, with or without a space, any case: 30gb, 1.5 TB, 512MiB, "
      "4096;\n"
      "30gb is 30 GiB, as in PegaFlow. Time is in seconds or with a unit: 90, 10s, 5m, 2h, 1d.\n"
      "A switch is --name, --name=false or --no-name. --help prints this.\n"
      "{}",
      describe_options(server_option_table()));
}

}  // namespace kvd
