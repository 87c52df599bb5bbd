#pragma once
// Which handler a request belongs to, and who may call it. Knows nothing of sockets.
//
// Immutable after build(); any thread.

#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "transport/http/http_server.hpp"

namespace kvd::http {

// True if both are equal; takes as long for any `given` of one length, whatever `secret` is.
bool equal_in_constant_time(std::string_view secret, std::string_view given) noexcept;

class route_table {
public:
  // errc::invalid_argument names the first route that cannot be served: a path that does not begin
  // with '/', or a method and path that occur twice. Adds GET /openapi.json.
  [[nodiscard]] static result<route_table> build(std::vector<route> routes,
                                                 std::string admin_token);

  // Answers 404, 405, 401 or 403 itself, else calls the handler. A handler that throws, or drops
  // its responder, answers 500.
  void dispatch(const request& incoming, responder respond) const;

private:
  std::vector<route> routes_;
  std::string admin_token_;
};

}  // namespace kvd::http
