#pragma once
// The one parser for sizes, durations, ratios and whole numbers that people write, and its inverse.
//
// Sizes count in steps of 1024, as PegaFlow's do: 30gb is 30 GiB. Case and the space before the
// unit do not matter. Fractions are exact: 1.5tb is 1649267441664 bytes; what does not come to a
// whole byte (a whole millisecond) is cut, and `exact` says so. Numbers are plain decimals: a sign,
// an exponent, `%`, NaN or infinity is refused.
//
// Errors are invalid_argument; the detail says what is wrong with the text and quotes it, cut to a
// readable length. The caller adds the option's name and its limit. Pure functions; any thread.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace kvd {

struct byte_size {
  std::uint64_t bytes;
  bool exact;  // false: the text named a fraction of a byte, which was cut
};

// `b`, `k|kb|kib`, `m|mb|mib`, `g|gb|gib`, `t|tb|tib`; no unit is bytes.
[[nodiscard]] result<byte_size> parse_bytes(std::string_view text);
// The largest unit that divides the size: `30gb`, `1536mb`, `4097b`. parse_bytes gives it back.
std::string format_bytes(std::uint64_t bytes);

struct time_span {
  std::chrono::milliseconds length;
  bool exact;  // false: the text named a fraction of a millisecond, which was cut
};

// `ms`, `s`, `m`, `h`, `d`; no unit is seconds.
[[nodiscard]] result<time_span> parse_duration(std::string_view text);
// The largest unit that divides it: `10m`, `90s`, `100ms`; zero is `0s`. REQUIRES: length >= 0.
std::string format_duration(std::chrono::milliseconds length);

// A decimal from 0 to 1.
[[nodiscard]] result<double> parse_ratio(std::string_view text);

[[nodiscard]] result<std::uint64_t> parse_unsigned(std::string_view text);

// true|false, yes|no, on|off, 1|0; case does not matter.
[[nodiscard]] result<bool> parse_bool(std::string_view text);

// Text in quotes for a message: at most 64 bytes of it, control bytes shown as \xNN.
std::string in_quotes(std::string_view text);

// Without leading and trailing blanks.
std::string_view trimmed(std::string_view text) noexcept;

}  // namespace kvd
