#include "cli/bench_policy.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>
#include <vector>

#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "core/clock.hpp"
#include "memory/eviction_policy.hpp"
#include "memory/policy_replay.hpp"

namespace kvd {

namespace {

namespace po = boost::program_options;
namespace json = boost::json;

struct bench_request {
  std::vector<std::string> traces;
  std::vector<std::string> policies;
  std::vector<double> capacities;  // percent of the distinct blocks
  std::vector<hit_measure> measures;
  bool as_json = false;
};

// One line of the table: a policy and a measure, a cell for each capacity.
struct bench_row {
  std::string policy;
  hit_measure measure;
  std::vector<replay_outcome> cells;
};

std::string_view name(hit_measure measure) noexcept {
  return measure == hit_measure::block ? "block" : "prefix";
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  for (;;) {
    const auto end = list.find(',', begin);
    items.push_back(list.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return items;
    begin = end + 1;
  }
}

void read_policies(const std::string& list, bench_request& out,
                   std::vector<std::string>& problems) {
  for (const auto& item : split(list)) {
    if (item.empty()) {
      problems.push_back("--policies: an empty name in \"" + list + "\"");
      continue;
    }
    const auto policy = make_eviction_policy(item == "default" ? "" : item);
    if (policy) {
      out.policies.emplace_back((*policy)->name());
    } else {
      problems.push_back("--policies: " + policy.error().detail);
    }
  }
}

void read_capacities(const std::string& list, bench_request& out,
                     std::vector<std::string>& problems) {
  for (const auto& item : split(list)) {
    std::size_t used = 0;
    double percent = 0;
    try {
      percent = std::stod(item, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != item.size() || !(percent > 0 && percent <= 100)) {
      problems.push_back(
          fmt::format("--capacities: \"{}\" is no percentage above 0 and up to 100", item));
      continue;
    }
    out.capacities.push_back(percent);
  }
}

void read_measures(const std::string& word, bench_request& out,
                   std::vector<std::string>& problems) {
  if (word == "block" || word == "both") out.measures.push_back(hit_measure::block);
  if (word == "prefix" || word == "both") out.measures.push_back(hit_measure::prefix);
  if (out.measures.empty()) {
    problems.push_back(fmt::format("--measure: \"{}\" is not prefix, block or both", word));
  }
}

po::options_description options() {
  po::options_description out("kvd bench policy: hit ratios of eviction policies on traces");
  auto add = out.add_options();
  add("help,h", "print this");
  add("trace", po::value<std::vector<std::string>>()->value_name("FILE"),
      "trace of JSON lines with hash_ids (Mooncake's format); may be repeated");
  add("policies",
      po::value<std::string>()->value_name("LIST")->default_value("lru,arc,s3fifo,tinylfu,default"),
      "policies to compare");
  add("capacities", po::value<std::string>()->value_name("LIST")->default_value("1,5,10,30,100"),
      "cache sizes, percent of the distinct blocks");
  add("measure", po::value<std::string>()->value_name("WORD")->default_value("prefix"),
      "prefix (unbroken leading run, what an engine can use), block, or both");
  add("json", po::bool_switch(), "one JSON document instead of tables");
  return out;
}

bench_request read_request(const po::variables_map& values, std::vector<std::string>& problems) {
  bench_request out;
  if (values.count("trace") != 0) {
    out.traces = values["trace"].as<std::vector<std::string>>();
  } else {
    problems.emplace_back("--trace: at least one trace file is needed");
  }
  read_policies(values["policies"].as<std::string>(), out, problems);
  read_capacities(values["capacities"].as<std::string>(), out, problems);
  read_measures(values["measure"].as<std::string>(), out, problems);
  out.as_json = values["json"].as<bool>();
  return out;
}

std::vector<bench_row> measure_all(const block_trace& trace, const bench_request& request) {
  const system_clock time;
  std::vector<bench_row> rows;
  for (const auto measure : request.measures) {
    for (const auto& policy_name : request.policies) {
      bench_row row{policy_name, measure, {}};
      for (const auto percent : request.capacities) {
        const auto policy = make_eviction_policy(policy_name);
        row.cells.push_back(replay(trace, **policy, trace.capacity_at(percent), measure, time));
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

void print_table(const std::string& path, const block_trace& trace, const bench_request& request,
                 const std::vector<bench_row>& rows) {
  fmt::print("{}: {} requests, {} references, {} distinct blocks, ceiling {:.2f} %\n", path,
             trace.request_ends.size(), trace.references.size(), trace.distinct(),
             100 * trace.ceiling());
  if (trace.bad_lines > 0) fmt::print("  {} bad lines left out:\n", trace.bad_lines);
  for (const auto& line : trace.bad_lines_named)
    fmt::print("    {}\n", line);
  fmt::print("{:<8}{:<10}", "measure", "policy");
  for (const auto percent : request.capacities)
    fmt::print("{:>8}%", percent);
  fmt::print("{:>12}{:>13}\n", "ns/access", "bytes/block");
  for (const auto& row : rows) {
    fmt::print("{:<8}{:<10}", name(row.measure), row.policy);
    auto slowest = 0.0;
    for (const auto& cell : row.cells) {
      fmt::print("{:>9.2f}", 100 * cell.hit_ratio());
      slowest = std::max(slowest, cell.ns_per_reference());
    }
    const auto bytes = static_cast<double>(row.cells.back().policy_bytes) /
                       static_cast<double>(trace.capacity_at(request.capacities.back()));
    fmt::print("{:>12.0f}{:>13.1f}\n", slowest, bytes);
  }
}

json::value cell_json(const block_trace& trace, double percent, const replay_outcome& cell) {
  const auto capacity = trace.capacity_at(percent);
  return {{"capacity_percent", percent},
          {"capacity_blocks", capacity},
          {"hits", cell.hits},
          {"hit_ratio", cell.hit_ratio()},
          {"ns_per_access", cell.ns_per_reference()},
          {"policy_bytes_per_block",
           static_cast<double>(cell.policy_bytes) / static_cast<double>(capacity)}};
}

json::value table_json(const std::string& path, const block_trace& trace,
                       const bench_request& request, const std::vector<bench_row>& rows) {
  json::array out;
  for (const auto& row : rows) {
    json::array cells;
    for (std::size_t at = 0; at < row.cells.size(); ++at) {
      cells.push_back(cell_json(trace, request.capacities[at], row.cells[at]));
    }
    out.push_back({{"measure", name(row.measure)}, {"policy", row.policy}, {"cells", cells}});
  }
  return {{"trace", path},
          {"requests", trace.request_ends.size()},
          {"references", trace.references.size()},
          {"distinct_blocks", trace.distinct()},
          {"ceiling", trace.ceiling()},
          {"bad_lines", trace.bad_lines},
          {"bad_lines_named", json::value_from(trace.bad_lines_named)},
          {"rows", out}};
}

int report(const std::vector<std::string>& problems) {
  for (const auto& problem : problems)
    fmt::print(stderr, "kvd bench policy: {}\n", problem);
  return problems.empty() ? 0 : 2;
}

int run(const bench_request& request) {
  std::vector<std::string> problems;
  json::array documents;
  for (const auto& path : request.traces) {
    const auto trace = read_block_trace(path);
    if (!trace) {
      problems.push_back("--trace: " + trace.error().detail);
      continue;
    }
    const auto rows = measure_all(*trace, request);
    if (request.as_json) {
      documents.push_back(table_json(path, *trace, request, rows));
    } else {
      print_table(path, *trace, request, rows);
    }
  }
  if (request.as_json) fmt::print("{}\n", json::serialize(documents));
  return report(problems);
}

}  // namespace

int bench_policy(std::span<const std::string> args) {
  try {
    po::variables_map values;
    const auto known = options();
    const std::vector<std::string> words(args.begin(), args.end());
    po::store(po::command_line_parser(words).options(known).positional({}).run(), values);
    if (values.count("help") != 0) {
      std::ostringstream text;
      text << known;
      fmt::print("{}", text.str());
      return 0;
    }
    std::vector<std::string> problems;
    const auto request = read_request(values, problems);
    return problems.empty() ? run(request) : report(problems);
  } catch (const std::exception& problem) {
    return report({problem.what()});
  }
}

}  // namespace kvd
