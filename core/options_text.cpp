// The half of core/options.hpp that faces people: nearest names and the help text.

#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "core/options.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

// Longer words are no misspelt option; the bound keeps the distance cheap on hostile input.
constexpr std::size_t word_bytes_max = 64;
constexpr std::size_t columns_max = 96;
constexpr std::size_t help_column = 34;

// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours
// cost one each.
std::size_t distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> cells((a.size() + 1) * width);
  const auto at = [&cells, width](std::size_t i, std::size_t j) -> std::size_t& {
    return cells[i * width + j];
  };
  for (std::size_t i = 0; i <= a.size(); ++i)
    at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j)
    at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(a.size(), b.size());
}

// Lower case, and `_` as `-`, so that `POOL_SIZE` is near `pool-size`.
std::string folded(std::string_view word) {
  std::string out(word);
  for (char& c : out) {
    if (c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string limits_note(const option& spec) {
  const bool bounded = spec.high != ~std::uint64_t{0};
  switch (spec.kind) {
  case option_kind::size:
    if (!bounded) return "";
    return fmt::format("{} to {}", format_bytes(spec.low), format_bytes(spec.high));
  case option_kind::period:
    return fmt::format("{} to {}", format_duration(std::chrono::milliseconds(spec.low)),
                       format_duration(std::chrono::milliseconds(spec.high)));
  case option_kind::count: return fmt::format("{} to {}", spec.low, spec.high);
  case option_kind::ratio: return "0 to 1";
  case option_kind::text:
    return spec.choices.empty() ? "" : fmt::format("{}", fmt::join(spec.choices, ", "));
  case option_kind::flag:
  case option_kind::list: break;
  }
  return "";
}

std::string help_text(const option& spec) {
  std::string out(spec.help);
  const auto limits = limits_note(spec);
  if (!limits.empty()) out += fmt::format(" [{}]", limits);
  if (!spec.fallback.empty()) out += fmt::format(" (default {})", spec.fallback);
  if (!spec.refused.empty()) out += " (refused in this version)";
  return out;
}

// `left`, then `text` wrapped into the help column.
void append_row(std::string& out, std::string_view left, std::string_view text) {
  std::string line = fmt::format("  {}", left);
  if (line.size() + 2 > help_column) {
    out += line + '\n';
    line.clear();
  }
  line.resize(help_column, ' ');
  std::size_t from = 0;
  bool fresh = true;
  while (from < text.size()) {
    const auto end = std::min(text.find(' ', from), text.size());
    const auto word = text.substr(from, end - from);
    if (!fresh && line.size() + 1 + word.size() > columns_max) {
      out += line + '\n';
      line.assign(help_column, ' ');
      fresh = true;
    }
    if (!fresh) line += ' ';
    line += word;
    fresh = false;
    from = end + 1;
  }
  out += line + '\n';
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > word_bytes_max) return {};
  const auto wanted = folded(word);
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, wanted.size() / 3) + 1;
  for (const auto candidate : candidates) {
    auto d = distance(wanted, folded(candidate));
    // A short word needs more than two letters right: `xy` is not near `lru`.
    if (d >= std::min(wanted.size(), candidate.size())) continue;
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  if (!best.empty()) return best;
  // Half a name is the next most common mistake: `pool` for `pool-size`.
  for (const auto candidate : candidates) {
    if (wanted.size() >= 3 && folded(candidate).find(wanted) != std::string::npos) return candidate;
  }
  return {};
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates,
                         std::string_view before, std::string_view after) {
  const auto best = nearest(word, candidates);
  return best.empty() ? "" : fmt::format("; did you mean {}{}{}?", before, best, after);
}

std::string describe_options(std::span<const option> table) {
  std::vector<std::string_view> groups;
  for (const auto& spec : table) {
    if (std::find(groups.begin(), groups.end(), spec.group) == groups.end()) {
      groups.push_back(spec.group);
    }
  }
  std::string out;
  for (const auto group : groups) {
    out += fmt::format("\n{}\n", group);
    for (const auto& spec : table) {
      if (spec.group != group) continue;
      const auto left = spec.kind == option_kind::flag
                            ? fmt::format("--{}", spec.name)
                            : fmt::format("--{} {}", spec.name, spec.value);
      append_row(out, left, help_text(spec));
    }
  }
  return out;
}

}  // namespace kvd
