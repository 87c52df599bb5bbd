#include "transport/http/route_table.hpp"

#include <algorithm>
#include <exception>
#include <optional>

#include <fmt/format.h>

#include "core/log.hpp"
#include "transport/http/http_message.hpp"

namespace kvd::http {

namespace {

// HEAD is GET without the body, which the connection leaves out.
bool serves(const route& candidate, std::string_view method) {
  return candidate.method == method || (method == "HEAD" && candidate.method == "GET");
}

std::string allowed_methods(const std::vector<route>& routes, std::string_view path) {
  std::string allowed;
  for (const auto& candidate : routes) {
    if (candidate.path != path) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += candidate.method;
    if (candidate.method == "GET") allowed += ", HEAD";
  }
  return allowed;
}

// A loopback peer that forwards for somebody else, or a browser that another site steers, is not
// the operator at this machine.
bool speaks_for_itself(const request& incoming) {
  for (const char* header : {"origin", "forwarded", "x-forwarded-for", "x-real-ip"})
    if (incoming.headers.contains(header)) return false;
  return true;
}

// The answer that keeps the caller out, or nothing if it may go on.
std::optional<response> refusal(const request& incoming, std::string_view token) {
  if (incoming.peer_is_loopback && speaks_for_itself(incoming)) return std::nullopt;
  if (token.empty()) {
    return text_answer(
        403, fmt::format("{} {} changes state, so it is open to direct calls from loopback "
                         "only; give kvd an admin token (--admin-token-file) to call it "
                         "from elsewhere\n",
                         incoming.method, incoming.path));
  }
  constexpr std::string_view scheme = "Bearer ";
  const auto header = incoming.headers.find("authorization");
  if (header != incoming.headers.end()) {
    const std::string_view value = header->second;
    if (value.starts_with(scheme) && equal_in_constant_time(token, value.substr(scheme.size())))
      return std::nullopt;
  }
  auto answer =
      text_answer(401, fmt::format("{} {} needs the header 'Authorization: Bearer <token>' with "
                                   "kvd's admin token; the request had {}\n",
                                   incoming.method, incoming.path,
                                   header == incoming.headers.end() ? "none" : "another one"));
  answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  return answer;
}

route openapi_route() {
  route self;
  self.method = "GET";
  self.path = "/openapi.json";
  self.summary = "This document.";
  self.answers = {{200, "application/json"}};
  return self;
}

}  // namespace

bool equal_in_constant_time(std::string_view secret, std::string_view given) noexcept {
  // The loop runs over what the caller sent, so its duration tells nothing of the secret.
  unsigned difference = secret.size() == given.size() ? 0U : 1U;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char expected = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(expected ^ given[i]));
  }
  const volatile unsigned result = difference;
  return result == 0;
}

responder::responder(std::function<void(response)> send) : send_(std::move(send)) {}

responder& responder::operator=(responder&& other) noexcept {
  if (this != &other) {
    responder dropped(std::exchange(send_, nullptr));
    send_ = std::exchange(other.send_, nullptr);
  }
  return *this;
}

responder::responder(responder&& other) noexcept : send_(std::exchange(other.send_, nullptr)) {}

responder::~responder() {
  if (!send_) return;
  try {
    (*this)(text_answer(500, "the answer to this request was lost inside kvd; please report it\n"));
  } catch (const std::exception& thrown) {
    log::error("http", "an answer could not be sent: {}", thrown.what());
  }
}

void responder::operator()(response answer) {
  if (auto send = std::exchange(send_, nullptr)) send(std::move(answer));
}

result<route_table> route_table::build(std::vector<route> routes, std::string admin_token) {
  routes.push_back(openapi_route());
  for (auto at = routes.begin(); at != routes.end(); ++at) {
    if (!at->path.starts_with('/'))
      return fail(errc::invalid_argument, fmt::format("route '{}' must begin with '/'", at->path));
    const auto twin = std::find_if(routes.begin(), at, [&](const route& earlier) {
      return earlier.path == at->path && earlier.method == at->method;
    });
    if (twin != at)
      return fail(errc::invalid_argument,
                  fmt::format("route {} {} is defined twice", at->method, at->path));
  }
  const auto document = openapi_document("kvd", routes);
  routes.back().handle = [document](const request&, responder respond) {
    respond({.status = 200, .content_type = "application/json", .body = document, .headers = {}});
  };
  route_table table;
  table.routes_ = std::move(routes);
  table.admin_token_ = std::move(admin_token);
  return table;
}

void route_table::dispatch(const request& incoming, responder respond) const {
  const auto found = std::find_if(routes_.begin(), routes_.end(), [&](const route& candidate) {
    return candidate.path == incoming.path && serves(candidate, incoming.method);
  });
  if (found == routes_.end()) {
    const auto allowed = allowed_methods(routes_, incoming.path);
    if (allowed.empty()) {
      respond(text_answer(404, fmt::format("nothing at {}; GET /openapi.json lists what there is\n",
                                           incoming.path)));
      return;
    }
    auto answer = text_answer(
        405, fmt::format("{} takes {}, not {}\n", incoming.path, allowed, incoming.method));
    answer.headers.emplace_back("Allow", allowed);
    respond(std::move(answer));
    return;
  }
  if (found->who == access::destructive) {
    if (auto refused = refusal(incoming, admin_token_)) {
      log::warn("http", "refused {} {} status={}", incoming.method, incoming.path, refused->status);
      respond(std::move(*refused));
      return;
    }
  }
  try {
    found->handle(incoming, std::move(respond));
  } catch (const std::exception& thrown) {
    log::error("http", "handler of {} {} threw: {}", incoming.method, incoming.path, thrown.what());
  }
}

}  // namespace kvd::http
