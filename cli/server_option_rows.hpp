#pragma once
// The rows of the server's option table, for the sources that hold them.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/server_options.hpp"
#include "core/address.hpp"
#include "core/options.hpp"

namespace kvd {

struct server_option_row {
  option spec;
  void (*store)(server_options& out, const option_value& value);  // null: read before the others
};

// The SSD tier, and other nodes: the end of the table. None is read before the others.
std::span<const server_option_row> tier_option_rows();

// Values as the rows' kinds promise them.
namespace option_values {

inline std::uint32_t small_number_of(const option_value& value) {
  return static_cast<std::uint32_t>(*std::get_if<std::uint64_t>(&value));
}
inline std::uint64_t number_of(const option_value& value) {
  return *std::get_if<std::uint64_t>(&value);
}
inline bool truth(const option_value& value) {
  return *std::get_if<bool>(&value);
}
inline const std::string& text_of(const option_value& value) {
  return *std::get_if<std::string>(&value);
}
inline std::chrono::seconds whole_seconds(const option_value& value) {
  return std::chrono::duration_cast<std::chrono::seconds>(
      *std::get_if<std::chrono::milliseconds>(&value));
}
inline const std::vector<std::string>& list_of(const option_value& value) {
  return *std::get_if<std::vector<std::string>>(&value);
}

// An address to listen on.
inline result<std::string> parse_bind(std::string_view text) {
  return parse_address(text).map([](const address& a) { return a.to_string(); });
}

}  // namespace option_values

}  // namespace kvd
