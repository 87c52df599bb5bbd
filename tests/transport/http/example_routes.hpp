#pragma once
// Routes for the tests of the server: one that answers, one that echoes, one that is destructive,
// and three that misbehave.

#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "transport/http/http_server.hpp"

namespace kvd::http::test {

// Keeps the responders of GET /later until the test releases them.
struct kept_responders {
  std::mutex mutex;
  std::vector<responder> waiting;
  void keep(responder one) {
    const std::lock_guard lock(mutex);
    waiting.push_back(std::move(one));
  }
  std::vector<responder> take() {
    const std::lock_guard lock(mutex);
    return std::exchange(waiting, {});
  }
};

inline route make(std::string method, std::string path, access who,
                  std::function<void(const request&, responder)> handle) {
  route out;
  out.method = std::move(method);
  out.path = std::move(path);
  out.summary = "A route of the tests.";
  out.who = who;
  out.answers = {{200, "text/plain"}};
  out.handle = std::move(handle);
  return out;
}

inline response plain(std::string body) {
  response answer;
  answer.body = std::move(body);
  return answer;
}

inline std::vector<route> example_routes(std::shared_ptr<kept_responders> kept) {
  std::vector<route> routes;
  routes.push_back(make("GET", "/hello", access::open,
                        [](const request&, responder respond) { respond(plain("hello\n")); }));
  routes.push_back(
      make("POST", "/echo", access::open, [](const request& incoming, responder respond) {
        std::string out = incoming.body;
        for (const auto& [key, value] : incoming.query)
          out += "[" + key + "=" + value + "]";
        respond(plain(out));
      }));
  routes.push_back(make("POST", "/wipe", access::destructive,
                        [](const request&, responder respond) { respond(plain("wiped\n")); }));
  routes.push_back(
      make("GET", "/lost", access::open, [](const request&, responder) { /* dropped */ }));
  routes.push_back(make("GET", "/throws", access::open,
                        [](const request&, responder) { throw std::runtime_error("scripted"); }));
  routes.push_back(make("GET", "/later", access::open, [kept](const request&, responder respond) {
    kept->keep(std::move(respond));
  }));
  return routes;
}

}  // namespace kvd::http::test
