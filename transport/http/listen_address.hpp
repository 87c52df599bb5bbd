#pragma once
// The text form of an address to listen on.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace kvd::http {

struct listen_address {
  std::string ip;  // "0.0.0.0", "::1"
  std::uint16_t port = 0;
};

// "127.0.0.1:9091", "[::1]:9091", "localhost:9091". errc::invalid_argument says what is missing.
[[nodiscard]] result<listen_address> parse_listen_address(std::string_view text);

// Whether a listener could bind there now, so that a port that is taken is told before memory is
// claimed. errc::io names the address and who holds it. A host name is left to its listener.
[[nodiscard]] result<void> check_available(std::string_view text);

}  // namespace kvd::http
