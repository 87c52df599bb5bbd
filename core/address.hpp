#pragma once
// Addresses as people write them: `host:port`, `[v6]:port`, and `http://host:port` for endpoints.
//
// Text only: no name is looked up and nothing is bound here. Errors are invalid_argument and name
// the part that is wrong (host or port). Pure functions; any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace kvd {

struct address {
  std::string host;    // without brackets
  std::uint16_t port;  // 0: the system picks one (servers only)
  bool v6;             // the host is an IPv6 literal

  // All interfaces: 0.0.0.0 or [::].
  bool is_unspecified() const noexcept;
  // 127.0.0.0/8, [::1] or localhost.
  bool is_loopback() const noexcept;
  // As it was written, with brackets where they belong.
  std::string to_string() const;
};

[[nodiscard]] result<address> parse_address(std::string_view text);

// `http://` or `https://`, an address whose port is not 0, and at most one trailing slash.
[[nodiscard]] result<address> parse_endpoint_url(std::string_view text);

}  // namespace kvd
