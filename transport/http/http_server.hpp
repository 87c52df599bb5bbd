#pragma once
// One small HTTP/1.1 server for the admin port: routing, limits, access, no product logic.
//
// Beast lives in http_server.cpp alone (a coroutine file costs half a minute of compiling). Handlers
// run on the server's thread and must not block; slow answers come later through the responder.
// A destructive route is refused unless the peer is loopback or shows the admin token.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace kvd::http {

struct request {
  std::string method;                        // "GET"
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded; the last of equal names wins
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool peer_is_loopback = false;
};

struct response {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Answers exactly once. Dropped without an answer it answers 500, so that no caller hangs.
class responder {
public:
  responder() = default;
  explicit responder(std::function<void(response)> send);
  responder(responder&&) noexcept = default;
  responder& operator=(responder&&) noexcept;
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
};

// The OpenAPI 3.0 document of these routes.
std::string openapi_document(std::string_view title, const std::vector<route>& routes);

class server {
public:
  // Binds and starts one thread. errc::io names the address and, if known, who holds it.
  // Adds GET /openapi.json itself. Unknown path: 404; known path, other method: 405 with Allow;
  // body over limits::http_body_bytes_max: 413; malformed: 400.
  static result<std::unique_ptr<server>> start(server_options options, std::vector<route> routes);
  virtual ~server() = default;
  virtual std::uint16_t port() const noexcept = 0;
  // Stops accepting, gives open requests until `grace_ms`, joins the thread. Idempotent.
  virtual void stop(unsigned grace_ms) = 0;
};

}  // namespace kvd::http
