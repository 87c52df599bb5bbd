#include "cli/status.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/bench.hpp"
#include "core/clock.hpp"
#include "core/options.hpp"
#include "transport/http/http_get.hpp"

namespace kvd {

namespace {

namespace json = boost::json;

constexpr std::string_view status_command = "status";
constexpr std::string_view status_purpose =
    "Shows what a running server holds and does: pool, blocks, leases, instances, queues, and the\n"
    "hit rate beside the best that its traffic allows.";
constexpr auto status_timeout = std::chrono::seconds(10);

const option status_options[] = {
    {.name = "http",
     .fallback = "127.0.0.1:9091",
     .value = "HOST:PORT",
     .group = "Server",
     .help = "HTTP address of the server (its --http-addr)."},
    {.name = "metaserver",
     .value = "[HOST:PORT]",
     .group = "Server",
     .help = "A metaserver instead: nodes, entries and ages. Without a value its default, "
             "127.0.0.1:9092."},
    {.name = "json",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "The server's answer as it is."},
    {.name = "help",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "Print this."},
};

const json::value* find(const json::object& in, std::string_view key) {
  const auto at = in.find(key);
  return at == in.end() || at->value().is_null() ? nullptr : &at->value();
}

// A field of a nested object: find(status, "pool", "capacity_bytes").
const json::value* find(const json::object& in, std::string_view section, std::string_view key) {
  const auto* nested = find(in, section);
  return nested != nullptr && nested->is_object() ? find(nested->get_object(), key) : nullptr;
}

std::optional<double> number(const json::value* value) {
  if (value == nullptr || !value->is_number()) return {};
  return value->to_number<double>();
}

std::string amount(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit)
    bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

std::string span_of_time(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds < 0 ? 0 : seconds);
  if (whole >= 86400) return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
  if (whole >= 3600) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

// A scalar as a person reads it, by what its key says about its unit.
std::string scalar(std::string_view key, const json::value& value) {
  if (value.is_string()) return std::string(value.get_string());
  if (value.is_bool()) return value.get_bool() ? "yes" : "no";
  const auto figure = number(&value);
  if (!figure) return json::serialize(value);
  if (key.ends_with("bytes")) return amount(*figure);
  if (key.ends_with("seconds")) return span_of_time(*figure);
  if (key.ends_with("ratio") || key.ends_with("rate") || key == "ceiling") {
    return fmt::format("{:.1f} %", 100 * *figure);
  }
  if (value.is_double()) return fmt::format("{:.2f}", *figure);
  return json::serialize(value);
}

std::string words(std::string_view key) {
  std::string text(key);
  for (auto& c : text) {
    if (c == '_') c = ' ';
  }
  for (const std::string_view unit : {" bytes", " seconds"}) {
    if (text.ends_with(unit)) text.resize(text.size() - unit.size());
  }
  return text;
}

// `key value, key value` of the scalars of an object, those in `skip` left out.
std::string line_of(const json::object& section) {
  std::string line;
  for (const auto& [key, value] : section) {
    if (value.is_object() || value.is_array() || value.is_null()) continue;
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", words(key), scalar(key, value));
  }
  return line;
}

// A list of objects as a status_options: a column for each key of the first row, in its order.
std::string table_of(const json::array& list) {
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> rows;
  for (const auto& item : list) {
    if (!item.is_object()) continue;
    const auto& object = item.get_object();
    if (keys.empty()) {
      std::vector<std::string> heads;
      for (const auto& [key, value] : object) {
        if (value.is_object() || value.is_array()) continue;
        keys.emplace_back(key);
        heads.push_back(words(key));
      }
      rows.push_back(std::move(heads));
    }
    std::vector<std::string> cells;
    for (const auto& key : keys) {
      const auto* value = find(object, key);
      cells.push_back(value == nullptr ? "-" : scalar(key, *value));
    }
    rows.push_back(std::move(cells));
  }
  std::string text;
  std::string_view lines = "";
  const auto plain = format_table(rows);
  for (lines = plain; !lines.empty();) {
    const auto end = lines.find('\n');
    text += fmt::format("  {}\n", lines.substr(0, end));
    lines.remove_prefix(end + 1);
  }
  return text;
}

// "name      first words, more words," on as many lines as 96 columns ask for.
void add_wrapped(std::string& out, std::string_view name, std::string_view text) {
  constexpr std::size_t indent = 12;
  constexpr std::size_t width = 96 - indent;
  auto head = std::string(name);
  while (!text.empty()) {
    auto end = text.size();
    if (end > width) {
      const auto comma = text.rfind(", ", width - 1);
      end = comma == std::string_view::npos ? end : comma + 1;
    }
    out += fmt::format("{:<{}}{}\n", head, indent, text.substr(0, end));
    head.clear();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void add_list(std::string& out, const json::object& in, std::string_view key) {
  const auto* list = find(in, key);
  if (list == nullptr || !list->is_array()) return;
  if (list->get_array().empty()) {
    out += fmt::format("{:<12}none\n", words(key));
    return;
  }
  out +=
      fmt::format("{} ({})\n{}", words(key), list->get_array().size(), table_of(list->get_array()));
}

void add_section(std::string& out, const json::object& in, std::string_view key) {
  const auto* section = find(in, key);
  if (section == nullptr || !section->is_object()) return;
  add_wrapped(out, words(key), line_of(section->get_object()));
}

// What part of the blocks that engines asked for was there.
void add_hit_rate(std::string& out, const json::object& top) {
  const auto hits = number(find(top, "store", "block_hits"));
  const auto misses = number(find(top, "store", "block_misses"));
  if (!hits || !misses || *hits + *misses <= 0) return;
  out += fmt::format("{:<12}{:.1f} % of {:.0f} blocks asked for\n", "hit rate",
                     100 * *hits / (*hits + *misses), *hits + *misses);
}

void add_pool(std::string& out, const json::object& top) {
  const auto capacity = number(find(top, "pool", "capacity_bytes"));
  const auto used = number(find(top, "pool", "used_bytes"));
  if (capacity && used && *capacity > 0) {
    out += fmt::format("{:<12}{} of {} used ({:.1f} %)", "pool", amount(*used), amount(*capacity),
                       100 * *used / *capacity);
    const auto claimed = number(find(top, "pool", "claimed_bytes"));
    if (claimed && *claimed < *capacity) out += fmt::format(", {} claimed", amount(*claimed));
    out += "\n";
  }
  const auto* pool = find(top, "pool");
  if (pool == nullptr || !pool->is_object()) return;
  add_list(out, pool->get_object(), "nodes");
  add_list(out, pool->get_object(), "classes");
}

void add_ssd(std::string& out, const json::object& top) {
  add_section(out, top, "ssd");
  const auto* ssd = find(top, "ssd");
  if (ssd != nullptr && ssd->is_object()) add_list(out, ssd->get_object(), "files");
}

void add_sharing(std::string& out, const json::object& top) {
  add_section(out, top, "sharing");
  const auto* sharing = find(top, "sharing");
  if (sharing == nullptr || !sharing->is_object()) return;
  add_list(out, sharing->get_object(), "metaservers");
  add_list(out, sharing->get_object(), "peers");
}

void add_head(std::string& out, const json::object& top, std::string_view id_key) {
  const auto text = [&top](std::string_view key) {
    const auto* value = find(top, key);
    return value == nullptr ? std::string("?") : scalar(key, *value);
  };
  out += fmt::format("kvd {}  state {}  up {}  {} {}\n", text("version"), text("state"),
                     text("uptime_seconds"), id_key.substr(0, id_key.find('_')), text(id_key));
}

bool is_metaserver(const json::object& top) {
  const auto* role = find(top, "role");
  return role != nullptr && role->is_string() && role->get_string() == "metaserver";
}

std::string describe_metaserver(const json::object& top) {
  std::string out;
  add_head(out, top, "directory_id");
  add_section(out, top, "directory");
  add_section(out, top, "sweeps");
  add_list(out, top, "nodes");
  return out;
}

// The option may come without a value, which the tables do not know.
std::vector<std::string> with_metaserver_value(std::span<const std::string> args) {
  std::vector<std::string> out(args.begin(), args.end());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool bare = i + 1 == out.size() || out[i + 1].starts_with("-");
    if (out[i] == "--metaserver" && bare) out[i] = "--metaserver=127.0.0.1:9092";
  }
  return out;
}

}  // namespace

result<std::string> describe_status(std::string_view body) {
  json::error_code code;
  const auto parsed = json::parse({body.data(), body.size()}, code);
  if (code) return fail(errc::io, fmt::format("the status is no JSON: {}", code.message()));
  if (!parsed.is_object()) return fail(errc::io, "the status is no JSON object");
  const auto& top = parsed.get_object();
  if (is_metaserver(top)) return describe_metaserver(top);
  std::string out;
  add_head(out, top, "boot_id");
  add_pool(out, top);
  add_section(out, top, "store");
  add_hit_rate(out, top);
  add_ssd(out, top);
  add_sharing(out, top);
  add_section(out, top, "copy");
  add_list(out, top, "hit_ceiling");
  add_list(out, top, "namespaces");
  add_list(out, top, "instances");
  return out;
}

int status(std::span<const std::string> args) {
  try {
    const auto given = parse_bench_options(status_command, status_purpose, status_options,
                                           with_metaserver_value(args));
    if (!given.values) return given.status;
    const bool metaserver = given.values->given("metaserver");
    const auto& address = given.values->get<std::string>(metaserver ? "metaserver" : "http");
    const system_clock time;
    const auto answer = http::get(address, "/status", time, status_timeout);
    if (!answer) {
      fmt::print(stderr,
                 "kvd status: {}\nIs the {} running, and is {} its --http-addr? "
                 "Say `kvd status --{} HOST:PORT`.\n",
                 answer.error().detail, metaserver ? "metaserver" : "server", address,
                 metaserver ? "metaserver" : "http");
      return bench_failed;
    }
    if (answer->status != 200) {
      fmt::print(stderr, "kvd status: {} answered GET /status with {}: {}\n", address,
                 answer->status, answer->body.substr(0, 200));
      return bench_failed;
    }
    if (given.values->get<bool>("json")) {
      fmt::print("{}\n", answer->body);
      return bench_ok;
    }
    const auto text = describe_status(answer->body);
    if (!text) return bench_error(status_command, text.error());
    fmt::print("{}", *text);
    return bench_ok;
  } catch (const std::exception& thrown) {
    return bench_error(status_command, {errc::internal, thrown.what()});
  }
}

}  // namespace kvd
