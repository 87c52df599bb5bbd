#include "core/options.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>

#include <fmt/format.h>

#include "core/limits.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

using std::chrono::milliseconds;

tl::unexpected<error> refuse_value(std::string why) {
  return fail(errc::invalid_argument, std::move(why));
}

std::string limits_text(const option& spec) {
  const auto text = [&spec](std::uint64_t v) {
    switch (spec.kind) {
    case option_kind::size: return format_bytes(v);
    case option_kind::period: return format_duration(milliseconds(v));
    default: return fmt::format("{}", v);
    }
  };
  if (spec.high == ~std::uint64_t{0}) return fmt::format("at least {}", text(spec.low));
  return fmt::format("{} to {}", text(spec.low), text(spec.high));
}

result<option_value> within(const option& spec, std::string_view text, option_value value,
                            std::uint64_t number) {
  if (number >= spec.low && number <= spec.high) return value;
  return refuse_value(
      fmt::format("{} is outside the limits {}", in_quotes(text), limits_text(spec)));
}

result<option_value> parse_text(const option& spec, const std::string& text) {
  if (!spec.choices.empty()) {
    const auto known = std::find(spec.choices.begin(), spec.choices.end(), text);
    if (known == spec.choices.end()) {
      return refuse_value(fmt::format("{} is none of {}{}", in_quotes(text),
                                      fmt::join(spec.choices, ", "),
                                      did_you_mean(text, spec.choices, "", "")));
    }
  }
  if (spec.parse == nullptr) return text;
  return spec.parse(text).map([](std::string canonical) { return option_value(canonical); });
}

result<option_value> parse_size(const option& spec, const std::string& text) {
  const auto size = parse_bytes(text);
  if (!size)
    return refuse_value(fmt::format("{}; limits {}", size.error().detail, limits_text(spec)));
  return within(spec, text, size->bytes, size->bytes);
}

result<option_value> parse_span(const option& spec, const std::string& text) {
  const auto span = parse_duration(text);
  if (!span)
    return refuse_value(fmt::format("{}; limits {}", span.error().detail, limits_text(spec)));
  const auto ms = static_cast<std::uint64_t>(span->length.count());
  if (!span->exact || ms % 1000 != 0) {
    return refuse_value(fmt::format("{} is not a whole number of seconds", in_quotes(text)));
  }
  return within(spec, text, span->length, ms);
}

result<option_value> parse_count(const option& spec, const std::string& text) {
  const auto value = parse_unsigned(text);
  if (!value)
    return refuse_value(fmt::format("{}; limits {}", value.error().detail, limits_text(spec)));
  return within(spec, text, *value, *value);
}

// Splits at commas, and what is between them at blanks; `a,,b` and the empty text have an empty
// entry, `a  b` has not.
result<std::vector<std::string_view>> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  std::size_t from = 0;
  while (from <= text.size()) {
    const auto comma = std::min(text.find(',', from), text.size());
    auto rest = trimmed(text.substr(from, comma - from));
    if (rest.empty()) {
      return fail(errc::invalid_argument, fmt::format("{} has an empty entry", in_quotes(text)));
    }
    while (!rest.empty()) {
      const auto end = std::min(rest.find_first_of(" \t\r\n"), rest.size());
      items.push_back(rest.substr(0, end));
      rest = trimmed(rest.substr(end));
    }
    from = comma + 1;
  }
  return items;
}

result<option_value> parse_list(const option& spec, std::span<const std::string> values) {
  std::vector<std::string> items;
  for (const auto& value : values) {
    const auto parts = split_list(value);
    if (!parts) return tl::unexpected(parts.error());
    for (const auto part : *parts) {
      auto item = spec.parse == nullptr ? result<std::string>(part) : spec.parse(part);
      if (!item) return tl::unexpected(item.error());
      if (std::find(items.begin(), items.end(), *item) != items.end()) {
        return refuse_value(fmt::format("{} is named twice", in_quotes(*item)));
      }
      if (items.size() == limits::option_list_items_max) {
        return refuse_value(fmt::format("has more than {} entries", limits::option_list_items_max));
      }
      items.push_back(std::move(*item));
    }
  }
  return items;
}

// Value when nothing is given: the type of the kind, empty.
option_value none_of(option_kind kind) {
  switch (kind) {
  case option_kind::flag: return false;
  case option_kind::size:
  case option_kind::count: return std::uint64_t{0};
  case option_kind::period: return milliseconds(0);
  case option_kind::ratio: return 0.0;
  case option_kind::list: return std::vector<std::string>{};
  case option_kind::text: break;
  }
  return std::string{};
}

effective_option fallback_of(const option& spec) {
  effective_option out{&spec, none_of(spec.kind), {}, "default", option_layer::fallback};
  if (spec.fallback.empty()) return out;
  const std::array<std::string, 1> text{std::string(spec.fallback)};
  auto value = parse_option(spec, text);
  if (!value) std::abort();  // a default that its own option refuses: every start would hit it
  out.value = std::move(*value);
  out.text = format_option(spec, out.value);
  return out;
}

// All settings of one option in one layer; their values joined when it is a list.
void apply_layer(const option& spec, option_layer layer, std::span<const setting> settings,
                 effective_option& out, findings& found) {
  std::vector<const setting*> mine;
  for (const auto& s : settings) {
    if (s.layer == layer && s.name == spec.name) mine.push_back(&s);
  }
  if (mine.empty()) return;
  const auto& first = *mine.front();
  if (!spec.refused.empty()) {
    found.errors.push_back(fmt::format("{}: {}", first.source, spec.refused));
    return;
  }
  if (mine.size() > 1 && spec.kind != option_kind::list) {
    found.errors.push_back(fmt::format("{}: given {} times ({} and {}); give it once", first.source,
                                       mine.size(), first.source, mine.back()->source));
    return;
  }
  std::vector<std::string> values;
  for (const auto* s : mine) {
    if (s->values.empty() && spec.kind != option_kind::flag) {
      found.errors.push_back(fmt::format("{}: needs a value ({})", s->source, spec.value));
      return;
    }
    values.insert(values.end(), s->values.begin(), s->values.end());
  }
  auto value = parse_option(spec, values);
  if (!value) {
    found.errors.push_back(fmt::format("{}: {}", first.source, value.error().detail));
    return;
  }
  const bool cut = spec.kind == option_kind::size && !parse_bytes(values.front())->exact;
  out = {&spec, std::move(*value), {}, first.source, layer};
  out.text = format_option(spec, out.value);
  if (cut) {
    found.warnings.push_back(fmt::format("{}: {} is no whole number of bytes, taken as {}",
                                         first.source, in_quotes(values.front()), out.text));
  }
}

}  // namespace

result<option_value> parse_option(const option& spec, std::span<const std::string> values) {
  if (spec.kind == option_kind::list) return parse_list(spec, values);
  if (values.empty()) {
    if (spec.kind == option_kind::flag) return true;
    return refuse_value("the value is missing");
  }
  if (values.size() > 1) {
    return refuse_value(fmt::format("takes one value, {} were given, the second is {}",
                                    values.size(), in_quotes(values[1])));
  }
  const auto& text = values.front();
  switch (spec.kind) {
  case option_kind::size: return parse_size(spec, text);
  case option_kind::period: return parse_span(spec, text);
  case option_kind::count: return parse_count(spec, text);
  case option_kind::flag: return parse_bool(text).map([](bool b) { return option_value(b); });
  case option_kind::ratio: return parse_ratio(text).map([](double d) { return option_value(d); });
  case option_kind::list:
  case option_kind::text: break;
  }
  return parse_text(spec, text);
}

std::string format_option(const option& spec, const option_value& value) {
  switch (spec.kind) {
  case option_kind::flag: return *std::get_if<bool>(&value) ? "true" : "false";
  case option_kind::size: return format_bytes(*std::get_if<std::uint64_t>(&value));
  case option_kind::count: return fmt::format("{}", *std::get_if<std::uint64_t>(&value));
  case option_kind::period: return format_duration(*std::get_if<milliseconds>(&value));
  case option_kind::ratio: return fmt::format("{}", *std::get_if<double>(&value));
  case option_kind::list:
    return fmt::format("{}", fmt::join(*std::get_if<std::vector<std::string>>(&value), ","));
  case option_kind::text: break;
  }
  return *std::get_if<std::string>(&value);
}

const effective_option& resolution::at(std::string_view name) const noexcept {
  const auto found =
      std::find_if(values_.begin(), values_.end(),
                   [name](const effective_option& o) { return o.spec->name == name; });
  if (found == values_.end()) std::abort();  // a typo in our own code: no table has that name
  return *found;
}

resolution resolve(std::span<const option> table, std::span<const setting> settings,
                   findings& found) {
  std::vector<effective_option> values;
  values.reserve(table.size());
  for (const auto& spec : table) {
    auto value = fallback_of(spec);
    for (const auto layer : {option_layer::file, option_layer::foreign_environment,
                             option_layer::environment, option_layer::flag}) {
      apply_layer(spec, layer, settings, value, found);
    }
    values.push_back(std::move(value));
  }
  return resolution(std::move(values));
}

const option* find_option(std::span<const option> table, std::string_view name) noexcept {
  const auto found =
      std::find_if(table.begin(), table.end(), [name](const option& o) { return o.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::string environment_name(std::string_view option_name) {
  std::string out = "KVD_";
  for (const char c : option_name) {
    out += c == '-' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  return out;
}

}  // namespace kvd
