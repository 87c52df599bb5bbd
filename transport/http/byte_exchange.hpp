#pragma once
// The parser, router and writer of the server without a socket: for the fuzzer and for tests.

#include <string>
#include <string_view>

#include "transport/http/route_table.hpp"

namespace kvd::http {

// What a connection that receives `bytes` and then the end of the stream would send. Handlers must
// answer before they return; one that keeps its responder counts as lost (500).
std::string answer_bytes(const route_table& routes, std::string_view bytes, bool peer_is_loopback);

}  // namespace kvd::http
