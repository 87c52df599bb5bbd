#include "core/units.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace kvd {

namespace {

using wide = unsigned __int128;

constexpr std::size_t quoted_bytes_max = 64;
// Digits after the point that count; 10^18 times the largest unit stays far below 2^128.
constexpr std::size_t fraction_digits_max = 18;

struct unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kib = 1024;
constexpr unit size_units[] = {
    {"", 1},
    {"b", 1},
    {"k", kib},
    {"kb", kib},
    {"kib", kib},
    {"m", kib* kib},
    {"mb", kib* kib},
    {"mib", kib* kib},
    {"g", kib* kib* kib},
    {"gb", kib* kib* kib},
    {"gib", kib* kib* kib},
    {"t", kib* kib* kib* kib},
    {"tb", kib* kib* kib* kib},
    {"tib", kib* kib* kib* kib},
};
// In milliseconds.
constexpr unit time_units[] = {
    {"", 1000},   {"ms", 1},      {"s", 1000},    {"sec", 1000},
    {"m", 60000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000},
};

constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
constexpr bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

tl::unexpected<error> refuse_number(std::string_view text, std::string_view why) {
  return fail(errc::invalid_argument, fmt::format("{} {}", in_quotes(text), why));
}

// A decimal split at its point, digits only.
struct decimal {
  std::string_view whole;
  std::string_view fraction;
  std::string_view rest;  // what follows the number
};

std::string_view take_digits(std::string_view& from) noexcept {
  std::size_t n = 0;
  while (n < from.size() && is_digit(from[n]))
    ++n;
  const auto digits = from.substr(0, n);
  from.remove_prefix(n);
  return digits;
}

result<decimal> split_decimal(std::string_view text) {
  const auto all = text;
  text = trimmed(text);
  if (text.empty()) return fail(errc::invalid_argument, "the value is empty");
  if (text.front() == '-') return refuse_number(all, "is negative");
  if (text.back() == '%') return refuse_number(all, "is a percentage; write a plain number");
  decimal out;
  out.whole = take_digits(text);
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    out.fraction = take_digits(text);
  }
  if (out.whole.empty() && out.fraction.empty())
    return refuse_number(all, "does not start with a number");
  out.rest = trimmed(text);
  return out;
}

struct scaled {
  std::uint64_t value;
  bool exact;
};

// whole.fraction times factor, rounded down; nothing when 64 bits cannot hold it.
std::optional<scaled> multiply(const decimal& number, std::uint64_t factor) {
  constexpr wide most = std::numeric_limits<std::uint64_t>::max();
  wide whole = 0;
  for (const char c : number.whole) {
    whole = whole * 10 + static_cast<unsigned>(c - '0');
    if (whole > most) return std::nullopt;
  }
  wide fraction = 0;
  wide ten_power = 1;
  const auto kept = number.fraction.substr(0, fraction_digits_max);
  for (const char c : kept) {
    fraction = fraction * 10 + static_cast<unsigned>(c - '0');
    ten_power *= 10;
  }
  const auto dropped = number.fraction.substr(kept.size());
  const bool lost = dropped.find_first_not_of('0') != std::string_view::npos;
  const wide part = fraction * factor;
  const wide total = whole * factor + part / ten_power;
  if (total > most) return std::nullopt;
  return scaled{static_cast<std::uint64_t>(total), !lost && part % ten_power == 0};
}

result<scaled> parse_with_units(std::string_view text, std::span<const unit> units,
                                std::string_view accepted) {
  const auto number = split_decimal(text);
  if (!number) return tl::unexpected(number.error());
  const auto name = lowered(number->rest);
  const auto found =
      std::find_if(units.begin(), units.end(), [&name](const unit& u) { return u.name == name; });
  if (found == units.end()) {
    return refuse_number(
        text, fmt::format("has the unknown unit {}; known: {}", in_quotes(number->rest), accepted));
  }
  const auto value = multiply(*number, found->factor);
  if (!value) return refuse_number(text, "is too large for 64 bits");
  return *value;
}

std::string format_with(std::uint64_t value, std::span<const unit> largest_first) {
  for (const auto& u : largest_first) {
    if (value != 0 && value % u.factor == 0) return fmt::format("{}{}", value / u.factor, u.name);
  }
  return fmt::format("0{}", largest_first.back().name);
}

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, quoted_bytes_max)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > quoted_bytes_max ? "...'" : "'";
  return out;
}

result<byte_size> parse_bytes(std::string_view text) {
  const auto value = parse_with_units(text, size_units, "b, kb, mb, gb, tb (steps of 1024)");
  if (!value) return tl::unexpected(value.error());
  return byte_size{value->value, value->exact};
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<unit, 5> units{{{"tb", kib * kib * kib * kib},
                                              {"gb", kib * kib * kib},
                                              {"mb", kib * kib},
                                              {"kb", kib},
                                              {"b", 1}}};
  return format_with(bytes, units);
}

result<time_span> parse_duration(std::string_view text) {
  const auto value = parse_with_units(text, time_units, "ms, s, m, h, d");
  if (!value) return tl::unexpected(value.error());
  // Far beyond any limit, and far from where arithmetic on chrono types overflows.
  constexpr std::uint64_t longest_ms = 86400000ULL * 366 * 1000;
  if (value->value > longest_ms) return refuse_number(text, "is longer than a thousand years");
  return time_span{std::chrono::milliseconds(value->value), value->exact};
}

std::string format_duration(std::chrono::milliseconds length) {
  static constexpr std::array<unit, 5> units{
      {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}}};
  if (length.count() == 0) return "0s";
  return format_with(static_cast<std::uint64_t>(length.count()), units);
}

result<double> parse_ratio(std::string_view text) {
  constexpr std::uint64_t one = 1'000'000'000;
  const auto number = split_decimal(text);
  if (!number) return tl::unexpected(number.error());
  if (!number->rest.empty()) return refuse_number(text, "is not a plain decimal");
  const auto value = multiply(*number, one);
  if (!value || value->value > one || (value->value == one && !value->exact)) {
    return refuse_number(text, "is above 1; a ratio lies between 0 and 1");
  }
  return static_cast<double>(value->value) / static_cast<double>(one);
}

result<std::uint64_t> parse_unsigned(std::string_view text) {
  const auto number = split_decimal(text);
  if (!number) return tl::unexpected(number.error());
  if (!number->rest.empty() || !number->fraction.empty() || number->whole.empty() ||
      trimmed(text).back() == '.') {
    return refuse_number(text, "is not a whole number");
  }
  const auto value = multiply(*number, 1);
  if (!value) return refuse_number(text, "is too large for 64 bits");
  return value->value;
}

result<bool> parse_bool(std::string_view text) {
  const auto word = lowered(trimmed(text));
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  if (word.empty()) return fail(errc::invalid_argument, "the value is empty");
  return refuse_number(text, "is neither true nor false");
}

}  // namespace kvd
