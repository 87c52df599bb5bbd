#include "cli/bench_meta.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/bench.hpp"
#include "cli/bench_meta_run.hpp"
#include "cli/bench_server.hpp"
#include "core/clock.hpp"
#include "core/options.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

constexpr std::string_view meta_command = "bench meta";
constexpr std::string_view meta_purpose =
    "Loads a metaserver with blocks of several nodes, asks it for prefixes, and removes a node "
    "while\n"
    "it is asked. --beside measures another metaserver in turns, with the same client and load.";

result<std::string> parse_clients(std::string_view text) {
  const auto value = parse_unsigned(text);
  if (!value || *value == 0 || *value > 1024) {
    return fail(errc::invalid_argument, "a number of clients is 1 to 1024");
  }
  return std::string(text);
}

const option meta_options[] = {
    {.name = "blocks",
     .kind = option_kind::count,
     .fallback = "10000000",
     .value = "N",
     .group = "Load",
     .help = "Blocks of all nodes together; each is held by one.",
     .low = 1000,
     .high = std::uint64_t{1} << 31},
    {.name = "node-blocks",
     .kind = option_kind::count,
     .fallback = "1000000",
     .value = "N",
     .group = "Load",
     .help = "Blocks of one node, so of the one that is removed.",
     .low = 1000,
     .high = std::uint64_t{1} << 31},
    {.name = "batch",
     .kind = option_kind::count,
     .fallback = "16384",
     .value = "N",
     .group = "Load",
     .help = "Hashes of one insert; PegaFlow's servers send up to 16384.",
     .low = 1,
     .high = 65536},
    {.name = "hashes",
     .kind = option_kind::count,
     .fallback = "1000",
     .value = "N",
     .group = "Queries",
     .help = "Hashes of one query; all of them are held by one node.",
     .low = 1,
     .high = 65536},
    {.name = "clients",
     .kind = option_kind::list,
     .fallback = "1,8,64",
     .value = "COUNTS",
     .group = "Queries",
     .help = "Clients that ask at the same time, each on its own connection.",
     .parse = parse_clients},
    {.name = "removal-clients",
     .kind = option_kind::count,
     .fallback = "8",
     .value = "N",
     .group = "Queries",
     .help = "Clients that ask while a node is removed.",
     .low = 1,
     .high = 1024},
    {.name = "rounds",
     .kind = option_kind::count,
     .fallback = "3",
     .value = "N",
     .group = "Queries",
     .help = "Rounds of each number of clients, in turns with the other metaserver.",
     .low = 1,
     .high = 100},
    {.name = "seconds",
     .kind = option_kind::count,
     .fallback = "3",
     .value = "N",
     .group = "Queries",
     .help = "Length of a round, and of the look at queries while a node is removed.",
     .low = 1,
     .high = 600},
    {.name = "addr",
     .value = "HOST:PORT",
     .group = "Metaservers",
     .help = "gRPC address of a running metaserver; without it one is started."},
    {.name = "pid",
     .kind = option_kind::count,
     .fallback = "0",
     .value = "PID",
     .group = "Metaservers",
     .help = "Its process on this host, for its memory."},
    {.name = "beside",
     .value = "HOST:PORT",
     .group = "Metaservers",
     .help = "gRPC address of another one that is measured in turns."},
    {.name = "beside-pid",
     .kind = option_kind::count,
     .fallback = "0",
     .value = "PID",
     .group = "Metaservers",
     .help = "Its process on this host, for its memory."},
    {.name = "json",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "One JSON document instead of the table."},
    {.name = "quiet",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "No progress."},
    {.name = "help",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "Print this."},
};

std::string ratio(double ours, double theirs) {
  return theirs > 0 ? fmt::format("{:.2f} x", ours / theirs) : "-";
}

void print_meta(const meta_plan& plan, const std::vector<meta_subject>& subjects) {
  std::vector<std::vector<std::string>> cells{{""}};
  const auto row = [&](const std::string& name, auto value, auto format) {
    std::vector<std::string> line{name};
    for (const auto& each : subjects)
      line.push_back(format(value(each)));
    if (subjects.size() == 2) line.push_back(ratio(value(subjects[0]), value(subjects[1])));
    cells.push_back(std::move(line));
  };
  const auto whole = [](double v) { return fmt::format("{:.0f}", v); };
  const auto fine = [](double v) { return fmt::format("{:.2f}", v); };
  for (const auto& each : subjects)
    cells[0].push_back(each.name);
  if (subjects.size() == 2) cells[0].emplace_back("ratio");
  row(
      "hashes inserted a second", [](const auto& s) { return s.insert_rate(); }, whole);
  for (std::size_t i = 0; i < plan.clients.size(); ++i) {
    const auto who = fmt::format("{} client{}", plan.clients[i], plan.clients[i] == 1 ? "" : "s");
    row(
        who + ": queries a second", [i](const auto& s) { return s.rows[i].rate(); }, whole);
    row(
        who + ": p50 ms", [i](const auto& s) { return s.rows[i].ms.percentile(50); }, fine);
    row(
        who + ": p99 ms", [i](const auto& s) { return s.rows[i].ms.percentile(99); }, fine);
  }
  row(
      "removing a node: call, ms", [](const auto& s) { return s.unregister_ms; }, fine);
  row(
      "queries meanwhile: p50 ms", [](const auto& s) { return s.removal.ms.percentile(50); }, fine);
  row(
      "queries meanwhile: p99 ms", [](const auto& s) { return s.removal.ms.percentile(99); }, fine);
  row(
      "queries meanwhile: max ms", [](const auto& s) { return s.removal.ms.percentile(100); },
      fine);
  row(
      "resident bytes an entry", [](const auto& s) { return s.bytes_an_entry(); }, fine);
  fmt::print(
      "{}\n{} blocks of {} nodes, inserts of {}, queries of {} hashes, {} rounds of {:.0f} s; "
      "a node of {} blocks removed while {} clients ask\n\n{}",
      machine_shape(), plan.blocks, meta_node_count(plan), plan.batch, plan.hashes, plan.rounds,
      plan.seconds, subjects[0].removed, plan.removal_clients, format_table(cells));
}

boost::json::object json_of(const query_row& row) {
  return {{"clients", row.clients},
          {"queries_per_s", row.rate()},
          {"p50_ms", row.ms.percentile(50)},
          {"p99_ms", row.ms.percentile(99)},
          {"max_ms", row.ms.percentile(100)}};
}

void print_meta_json(const meta_plan& plan, const std::vector<meta_subject>& subjects) {
  boost::json::array list;
  for (const auto& each : subjects) {
    boost::json::array rows;
    for (const auto& row : each.rows)
      rows.push_back(json_of(row));
    list.push_back({{"name", each.name},
                    {"inserts_per_s", each.insert_rate()},
                    {"inserted", each.inserted},
                    {"queries", std::move(rows)},
                    {"unregister_ms", each.unregister_ms},
                    {"removed", each.removed},
                    {"while_removing", json_of(each.removal)},
                    {"bytes_per_entry", each.bytes_an_entry()}});
  }
  const boost::json::object document{
      {"command", meta_command},         {"machine", machine_json()}, {"blocks", plan.blocks},
      {"node_blocks", plan.node_blocks}, {"batch", plan.batch},       {"hashes", plan.hashes},
      {"metaservers", std::move(list)}};
  fmt::print("{}\n", boost::json::serialize(document));
}

meta_plan meta_plan_from(const resolution& given) {
  meta_plan plan;
  plan.blocks = given.get<std::uint64_t>("blocks");
  plan.node_blocks = std::min(given.get<std::uint64_t>("node-blocks"), plan.blocks);
  plan.batch = given.get<std::uint64_t>("batch");
  plan.hashes = given.get<std::uint64_t>("hashes");
  for (const auto& text : given.get<std::vector<std::string>>("clients"))
    plan.clients.push_back(*parse_unsigned(text));
  plan.removal_clients = given.get<std::uint64_t>("removal-clients");
  plan.rounds = given.get<std::uint64_t>("rounds");
  plan.seconds = static_cast<double>(given.get<std::uint64_t>("seconds"));
  plan.json = given.get<bool>("json");
  plan.quiet = given.get<bool>("quiet");
  return plan;
}

int run_meta_plan(const resolution& given) {
  const auto plan = meta_plan_from(given);
  const system_clock time;
  std::unique_ptr<child_server> child;
  std::vector<meta_subject> subjects(1);
  subjects[0].name = "kvd";
  subjects[0].address = given.get<std::string>("addr");
  subjects[0].pid = static_cast<long>(given.get<std::uint64_t>("pid"));
  if (subjects[0].address.empty()) {
    const child_options options{.executable = {},
                                .arguments = {"--max-entries", std::to_string(plan.blocks + 1000)},
                                .role = "metaserver"};
    auto started = child_server::start(options, time);
    if (!started) return bench_error(meta_command, started.error());
    child = std::move(*started);
    subjects[0].address = child->addresses().grpc;
    subjects[0].pid = child->pid();
  } else {
    subjects[0].name = subjects[0].address;
  }
  if (const auto& beside = given.get<std::string>("beside"); !beside.empty()) {
    auto& other = subjects.emplace_back();
    other.name = beside;
    other.address = beside;
    other.pid = static_cast<long>(given.get<std::uint64_t>("beside-pid"));
  }
  if (auto measured = measure_metaservers(plan, time, subjects); !measured) {
    return bench_error(meta_command, measured.error());
  }
  plan.json ? print_meta_json(plan, subjects) : print_meta(plan, subjects);
  return bench_ok;
}

}  // namespace

int bench_meta(std::span<const std::string> args) {
  try {
    const auto given = parse_bench_options(meta_command, meta_purpose, meta_options, args);
    if (!given.values) return given.status;
    return run_meta_plan(*given.values);
  } catch (const std::exception& thrown) {
    return bench_error(meta_command, {errc::internal, thrown.what()});
  }
}

}  // namespace kvd
