#include "cli/role_plan.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "core/address.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

// A token is one header line; more is some other file.
constexpr std::size_t token_bytes_max = 4096;

std::string shown_value(const effective_option& option, bool token_is_set) {
  if (option.spec->name == "admin-token-file" && token_is_set) {
    return option.text + " (set)";
  }
  if (!option.text.empty()) return option.text;
  return "-";
}

}  // namespace

void add_file_settings(std::span<const option> table, std::string_view role,
                       const file_reader& read, std::vector<setting>& settings, findings& found) {
  const setting* chosen = nullptr;
  for (const auto& s : settings) {
    if (s.name != "config" || s.values.size() != 1) continue;
    if (chosen == nullptr || s.layer > chosen->layer) chosen = &s;
  }
  if (chosen == nullptr) return;
  const auto path = chosen->values.front();
  const auto file = read(path);
  if (!file) {
    found.errors.push_back(fmt::format("{}: {}", chosen->source, file.error().detail));
    return;
  }
  auto more = settings_from_file(table, role, path, file->text, found);
  std::move(more.begin(), more.end(), std::back_inserter(settings));
}

std::string read_token(const effective_option& where, const file_reader& read, findings& found) {
  if (where.text.empty()) return {};
  const auto file = read(where.text);
  if (!file) {
    found.errors.push_back(fmt::format("{}: {}", where.source, file.error().detail));
    return {};
  }
  const auto token = trimmed(file->text);
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (token.empty() || token.size() > token_bytes_max || !printable) {
    found.errors.push_back(
        fmt::format("{}: {}: must hold one token of 1 to {} printable characters without blanks",
                    where.source, in_quotes(where.text), token_bytes_max));
    return {};
  }
  if (file->world_readable) {
    found.warnings.push_back(fmt::format("{}: {}: every user can read this token; chmod 600 it",
                                         where.source, in_quotes(where.text)));
  }
  return std::string(token);
}

void check_ports(const effective_option& first, const effective_option& second, findings& found) {
  const auto a = parse_address(first.text);
  const auto b = parse_address(second.text);
  if (!a || !b || a->port == 0 || a->port != b->port) return;
  if (a->host == b->host || a->is_unspecified() || b->is_unspecified()) {
    found.errors.push_back(fmt::format("{}: {} needs the port of {} {}; give them two ports",
                                       second.source, second.text, first.source, first.text));
  }
}

std::string describe_values(const resolution& values, bool token_is_set) {
  std::vector<std::array<std::string, 3>> lines{{"option", "value", "source"}};
  for (const auto& option : values.all()) {
    if (option.spec->name == "check-config") continue;
    lines.push_back(
        {std::string(option.spec->name), shown_value(option, token_is_set), option.source});
  }
  std::array<std::size_t, 2> widths{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (const auto& line : lines) {
    out += fmt::format("{:<{}}  {:<{}}  {}\n", line[0], widths[0], line[1], widths[1], line[2]);
  }
  return out;
}

std::string effective_json(const resolution& values) {
  boost::json::object out;
  for (const auto& option : values.all()) {
    boost::json::object row{{"value", option.text}, {"source", option.source}};
    if (option.spec->kind == option_kind::size) {
      row["bytes"] = *std::get_if<std::uint64_t>(&option.value);
    }
    out[option.spec->name] = std::move(row);
  }
  return boost::json::serialize(out);
}

void print_findings(const findings& found, std::string_view command) {
  for (const auto& text : found.warnings)
    fmt::print(stderr, "warning: {}\n", text);
  for (const auto& text : found.errors)
    fmt::print(stderr, "error: {}\n", text);
  if (!found.errors.empty()) {
    fmt::print(stderr, "kvd: {} error{}; nothing was started. `kvd {} --help` lists the options.\n",
               found.errors.size(), found.errors.size() == 1 ? "" : "s", command);
  }
}

}  // namespace kvd
