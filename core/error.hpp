#pragma once
// Errors and results for everything below the actors.
//
// Expected failure is a value: `result<T>` holds a T or an `error`. The code says which class of
// failure it is (it decides the gRPC status, the HTTP status and so the client's exception); the
// detail says facts for a person: what, which value, which limit. Programmer errors assert.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace kvd {

// Numbers travel in logs and metrics: append, never renumber.
enum class errc : std::uint8_t {
  invalid_argument = 1,    // the request can never succeed as sent
  instance_missing = 2,    // no such instance, or it is being torn down
  worker_missing = 3,      // the instance has no such device
  topology_mismatch = 4,   // workers of one instance disagree
  lease_missing = 5,       // unknown, expired or used up
  storage = 6,             // the pool or a tier could not do it
  device = 7,              // the engine's memory could not be opened or copied
  unavailable = 8,         // starting or draining
  not_configured = 9,      // this role or feature is not part of this process
  limit_exceeded = 10,     // a bound of core/limits.hpp was reached
  not_found = 11,          // nothing by that name
  permission_denied = 12,  // needs loopback or a token
  io = 13,                 // the operating system refused; detail holds errno's text
  cancelled = 14,          // the requester went away or the deadline passed
  internal = 15,           // a bug: an answer was lost
};

// Short stable name, for logs and metric labels.
std::string_view name(errc code) noexcept;

struct error {
  errc code;
  std::string detail;
};

template<class T>
using result = tl::expected<T, error>;

inline tl::unexpected<error> fail(errc code, std::string detail) {
  return tl::unexpected<error>(error{code, std::move(detail)});
}

}  // namespace kvd
