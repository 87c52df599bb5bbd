#include "cli/command.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "cli/bench_copy.hpp"
#include "cli/bench_meta.hpp"
#include "cli/bench_net.hpp"
#include "cli/bench_policy.hpp"
#include "cli/bench_rpc.hpp"
#include "cli/bench_ssd.hpp"
#include "cli/bench_trace.hpp"
#include "cli/fsck.hpp"
#include "cli/metaserver.hpp"
#include "cli/run.hpp"
#include "cli/server.hpp"
#include "cli/status.hpp"
#include "cli/version.hpp"
#include "core/options.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

int print_help(command_line rest);

constexpr command commands[] = {
    {"server", "keep KV-cache blocks for the engines on this host", server, server_help},
    {"metaserver", "who holds which block, for all nodes", metaserver, metaserver_help},
    {"run", "several roles in one process: kvd run --roles server,metaserver", run, run_help},
    {"version", "version, commit and wire versions; --json", version, nullptr},
    {"help", "what a command does: kvd help server", print_help, nullptr},
    {"status", "what a running server holds and does", status, nullptr},
    {"demo", "two engines save and load a slice of a real trace", nullptr, nullptr},
    {"bench copy", "bytes per second of saves and loads, beside memcpy", bench_copy, nullptr},
    {"bench net", "reads from another process' pool, beside iperf3 and memcpy", bench_net, nullptr},
    {"bench rpc", "latency of prefix queries while engines save", bench_rpc, nullptr},
    {"bench meta", "announcements and prefix queries of a metaserver", bench_meta, nullptr},
    {"bench policy", "hit rates of the eviction policies on a trace", bench_policy, nullptr},
    {"bench trace", "replay a trace as engines, every loaded byte checked", bench_trace, nullptr},
    {"fsck", "check the files of the SSD tier", fsck_command, nullptr},
    {"bench ssd", "reads and writes of the SSD tier, beside fio", bench_ssd, nullptr},
    {"coordinator", "fleet membership, quotas and pins", nullptr, nullptr},
    {"serve-batch", "batch and live inference over the same pool", nullptr, nullptr},
    {"router", "route requests to prefill and decode engines", nullptr, nullptr},
    {"doctor", "check this host before a start", nullptr, nullptr},
    {"top", "a live view of a running server", nullptr, nullptr},

};

bool is_help(std::string_view word) noexcept {
  return word == "--help" || word == "-h";
}

std::string list_commands() {
  std::string out = "usage: kvd COMMAND [OPTION...]\n\n"
                    "kvd keeps the KV cache of LLM engines outside the engine.\n\nCommands:\n";
  for (const auto& c : commands) {
    if (c.run != nullptr) out += fmt::format("  {:<14}{}\n", c.name, c.summary);
  }
  out += "\n`kvd help COMMAND` says more. Not in this version: ";
  std::string absent;
  for (const auto& c : commands) {
    if (c.run == nullptr) absent += fmt::format("{}{}", absent.empty() ? "" : ", ", c.name);
  }
  return out + absent + ".\n";
}

std::string landed() {
  std::string out;
  for (const auto& c : commands) {
    if (c.run != nullptr) out += fmt::format("{}{}", out.empty() ? "" : ", ", c.name);
  }
  return out;
}

// The command whose words begin `args`, two words before one.
const command* find_command(command_line args) {
  for (const std::size_t words : {std::size_t{2}, std::size_t{1}}) {
    if (args.size() < words) continue;
    const auto name = words == 2 ? args[0] + ' ' + args[1] : args[0];
    for (const auto& c : commands) {
      if (c.name == name) return &c;
    }
  }
  return nullptr;
}

int refuse_unknown(command_line args) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> kin;  // two-word commands that begin with this word
  for (const auto& c : commands) {
    names.push_back(c.name);
    if (c.name.starts_with(args[0] + ' ')) kin.push_back(c.name);
  }
  if (!kin.empty() && args.size() == 1) {
    fmt::print(stderr, "kvd: {} needs one more word: {}\n", args[0], fmt::join(kin, ", "));
    return exit_usage;
  }
  const auto name = kin.empty() ? args[0] : args[0] + ' ' + args[1];
  fmt::print(stderr, "kvd: no command {}{}\n`kvd help` lists what is there.\n", in_quotes(name),
             did_you_mean(name, kin.empty() ? names : kin, "kvd ", ""));
  return exit_usage;
}

int refuse_absent(const command& c) {
  fmt::print(stderr, "kvd: {} has not landed in this version; there is today: {}\n", c.name,
             landed());
  return exit_usage;
}

int print_help(command_line rest) {
  if (rest.empty()) {
    fmt::print("{}", list_commands());
    return 0;
  }
  const auto* c = find_command(rest);
  if (c == nullptr) return refuse_unknown(rest);
  if (c->run == nullptr) return refuse_absent(*c);
  if (c->help != nullptr) {
    fmt::print("{}", c->help());
    return 0;
  }
  const std::vector<std::string> ask{"--help"};
  return c->run(ask);
}

}  // namespace

std::span<const command> command_table() {
  return commands;
}

int dispatch(command_line args) {
  if (args.empty()) {
    fmt::print(stderr, "{}", list_commands());
    return exit_usage;
  }
  if (is_help(args[0])) return print_help({});
  if (args[0] == "--version") return version(args.subspan(1));
  const auto* c = find_command(args);
  if (c == nullptr) {
    const bool group_help = args.size() == 2 && is_help(args[1]);
    return refuse_unknown(group_help ? args.first(1) : args);
  }
  if (c->run == nullptr) return refuse_absent(*c);
  const bool two_words = c->name.find(' ') != std::string_view::npos;
  const auto rest = args.subspan(two_words ? 2 : 1);
  if (c->help != nullptr && std::any_of(rest.begin(), rest.end(), is_help)) {
    fmt::print("{}", c->help());
    return 0;
  }
  return c->run(rest);
}

}  // namespace kvd
