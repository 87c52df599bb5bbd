#pragma once
// One small HTTP/1.1 server for the admin port: routing, limits, access, no product logic.
//
// Beast lives in request_reader.cpp alone (it costs half a minute of compiling).
// Handlers run on the server's thread and must not block; slow answers come later through the
// responder. A destructive route is refused unless the peer is loopback or shows the admin token.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"

namespace kvd::http {

struct request {
  std::string method;                          // "GET"
  std::string path;                            // decoded, without the query
  std::map<std::string, std::string> query;    // decoded; the last of equal names wins
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool peer_is_loopback = false;
};

struct response {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // beside those that the server sets
};

// Answers exactly once. Dropped without an answer it answers 500, so that no caller hangs.
class responder {
public:
  responder() = default;
  explicit responder(std::function<void(response)> send);
  responder(responder&& other) noexcept;
  responder& operator=(responder&& other) noexcept;
  ~responder();
  void operator()(response answer);

private:
  std::function<void(response)> send_;
};

enum class access : std::uint8_t { open, destructive };

struct route {
  std::string method;
  std::string path;     // exact match
  std::string summary;  // one sentence, shown in /openapi.json
  access who = access::open;
  // Names of the query parameters it takes, for /openapi.json.
  std::vector<std::string> parameters;
  // Status codes it can answer with and their content type, for /openapi.json.
  std::vector<std::pair<unsigned, std::string>> answers;
  std::function<void(const request&, responder)> handle;
};

struct server_options {
  std::string address;      // "0.0.0.0:9091", "[::1]:0"; port 0 picks a free one
  std::string admin_token;  // empty: destructive routes from loopback only
  std::size_t connections_max = limits::http_connections_max;  // more are answered 503
  const clock* time = nullptr;  // for the timeouts; outlives the server; null: the system's clock
};

// The OpenAPI 3.0 document of these routes.
std::string openapi_document(std::string_view title, const std::vector<route>& routes);

class server {
public:
  // Binds and starts one thread. errc::io names the address and, if known, who holds it;
  // errc::invalid_argument an address that is no ip:port, or two routes of one method and path.
  // Adds GET /openapi.json itself. Unknown path: 404; known path, other method: 405 with Allow;
  // body over limits::http_body_bytes_max: 413; header over http_header_bytes_max: 431;
  // malformed: 400; a GET route also answers HEAD.
  static result<std::unique_ptr<server>> start(server_options options, std::vector<route> routes);
  virtual ~server() = default;
  virtual std::uint16_t port() const noexcept = 0;
  // Stops accepting, gives open requests until `grace_ms`, joins the thread. Idempotent.
  // REQUIRES: not called from a handler. A responder that answers afterwards is ignored.
  virtual void stop(unsigned grace_ms) = 0;
};

}  // namespace kvd::http
