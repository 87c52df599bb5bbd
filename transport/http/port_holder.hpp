#pragma once
// Who listens on a TCP port of this machine, for the error text of a failed bind.

#include <cstdint>
#include <string>

namespace kvd::http {

// "pid 4711 (kvd)", or the reason why it is not known. Reads /proc; any thread; never fails.
std::string port_holder(std::uint16_t port);

}  // namespace kvd::http
