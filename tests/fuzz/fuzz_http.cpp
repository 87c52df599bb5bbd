// LINK: kvd_http
// Bytes of a connection, through the same reader, route table and writer as a socket's.
//
// The first byte says where the peer is and whether there is an admin token. Beyond crashes: every
// answer is a whole, well-formed message, and no destructive handler runs for a stranger.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "transport/http/byte_exchange.hpp"

namespace {

using namespace kvd::http;

bool wiped = false;

route make(const char* method, const char* path, kvd::http::access who) {
  route out;
  out.method = method;
  out.path = path;
  out.who = who;
  out.parameters = {"id"};
  out.answers = {{200, "text/plain"}};
  out.handle = [who](const request& incoming, responder respond) {
    wiped = wiped || who == kvd::http::access::destructive;
    response answer;
    answer.body = incoming.path + incoming.body;
    for (const auto& [key, value] : incoming.query)
      answer.body += key + value;
    respond(std::move(answer));
  };
  return out;
}

route_table table(const char* token) {
  auto made = route_table::build({make("GET", "/open", kvd::http::access::open),
                                  make("POST", "/open", access::open),
                                  make("POST", "/wipe", kvd::http::access::destructive)},
                                 token);
  if (!made) std::abort();
  return std::move(*made);
}

// Aborts unless `out` is a row of whole messages.
void check_messages(std::string_view out, bool may_answer_head) {
  while (!out.empty()) {
    if (!out.starts_with("HTTP/1.1 ")) std::abort();
    const auto end = out.find("\r\n\r\n");
    if (end == std::string_view::npos) std::abort();
    const auto head = out.substr(0, end);
    const auto field = head.find("\r\nContent-Length: ");
    const bool interim = head.starts_with("HTTP/1.1 100");
    if (!interim && field == std::string_view::npos) std::abort();
    std::size_t body = 0;
    if (!interim) body = std::strtoul(head.data() + field + 18, nullptr, 10);
    out.remove_prefix(end + 4);
    // The answer to a HEAD names a length and carries nothing.
    if (may_answer_head && (out.empty() || out.starts_with("HTTP/1.1 "))) continue;
    if (out.size() < body) std::abort();
    out.remove_prefix(body);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const route_table closed = table("");
  static const route_table locked = table("a token that no input knows \x01\x02\x03");
  if (size == 0) return 0;
  const bool loopback = (bytes[0] & 1) != 0;
  const auto& routes = (bytes[0] & 2) != 0 ? locked : closed;
  const std::string_view input(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  wiped = false;
  const auto out = answer_bytes(routes, input, loopback);
  if (wiped && !loopback) std::abort();
  check_messages(out, input.find("HEAD") != std::string_view::npos);
  return 0;
}
