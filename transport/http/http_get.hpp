#pragma once
// A blocking HTTP/1.1 GET for kvd's own tools, over plain sockets, with one deadline for all of it.
//
// Understands what kvd's server and common proxies answer: Content-Length, chunked, or a body that
// ends with the connection. Follows no redirect, speaks no TLS.

#include <chrono>
#include <string>
#include <string_view>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace kvd::http {

struct get_answer {
  unsigned status = 0;
  std::string body;
};

// `address` is host:port or [v6]:port, `path` starts with a slash. errc::invalid_argument: the
// address; errc::unavailable: nobody listens; errc::cancelled: `timeout` passed; errc::io: the
// connection broke or the answer is no HTTP; errc::limit_exceeded: a body beyond 16 MiB. Any
// thread.
result<get_answer> get(std::string_view address, std::string_view path, const clock& time,
                       std::chrono::milliseconds timeout);

// The answer inside the raw bytes of a connection that the server has closed or may close. Pure;
// errc::io says what is not HTTP, or that the body is shorter than it says.
result<get_answer> parse_get_answer(std::string_view raw);

}  // namespace kvd::http
