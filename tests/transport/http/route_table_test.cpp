#include <doctest/doctest.h>

#include <boost/json.hpp>

#include "tests/transport/http/example_routes.hpp"
#include "tests/transport/http/raw_client.hpp"
#include "transport/http/byte_exchange.hpp"

using namespace kvd;
using namespace kvd::http;
using namespace kvd::http::test;

namespace {

route_table table_with(std::string token) {
  auto table =
      route_table::build(example_routes(std::make_shared<kept_responders>()), std::move(token));
  REQUIRE(table);
  return std::move(*table);
}

std::string wipe(std::string_view extra_headers) {
  return "POST /wipe HTTP/1.1\r\nHost: a\r\n" + std::string(extra_headers) + "\r\n";
}

constexpr bool from_loopback = true;
constexpr bool from_elsewhere = false;

}  // namespace

TEST_CASE("an unknown path is 404 and names itself") {
  const auto table = table_with("");
  const auto answer = answer_bytes(table, simple_request("GET", "/nothing"), from_loopback);
  CHECK(status_of(answer) == 404);
  CHECK(body_of(answer).find("/nothing") != std::string::npos);
}

TEST_CASE("every route answers every other method with 405 and the methods it takes") {
  const auto table = table_with("");
  const std::vector<std::string> methods = {"GET",     "HEAD",  "POST",  "PUT",     "DELETE",
                                            "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW"};
  for (const auto& known : example_routes(std::make_shared<kept_responders>())) {
    for (const auto& method : methods) {
      const bool served = method == known.method || (method == "HEAD" && known.method == "GET");
      CAPTURE(known.path);
      CAPTURE(method);
      const auto answer = answer_bytes(table, simple_request(method, known.path), from_loopback);
      if (served) {
        CHECK(status_of(answer) != 405);
      } else {
        CHECK(status_of(answer) == 405);
        CHECK(answer.find("Allow: " + known.method) != std::string::npos);
      }
    }
  }
}

TEST_CASE(
    "every destructive route is refused from elsewhere, with and without a token configured") {
  for (const auto& known : example_routes(std::make_shared<kept_responders>())) {
    if (known.who != access::destructive) continue;
    CAPTURE(known.path);
    const auto bytes = simple_request(known.method, known.path);
    const auto closed = answer_bytes(table_with(""), bytes, from_elsewhere);
    CHECK(status_of(closed) == 403);
    CHECK(body_of(closed).find("loopback") != std::string::npos);
    const auto locked = answer_bytes(table_with("secret"), bytes, from_elsewhere);
    CHECK(status_of(locked) == 401);
    CHECK(locked.find("WWW-Authenticate: Bearer") != std::string::npos);
    CHECK(locked.find("secret") == std::string::npos);
  }
}

TEST_CASE("a destructive route opens to loopback, and to the right token from elsewhere") {
  CHECK(status_of(answer_bytes(table_with(""), wipe(""), from_loopback)) == 200);
  CHECK(status_of(answer_bytes(table_with("secret"), wipe(""), from_loopback)) == 200);
  CHECK(status_of(answer_bytes(table_with("secret"), wipe("Authorization: Bearer secret\r\n"),
                               from_elsewhere)) == 200);
}

TEST_CASE("wrong tokens stay outside: prefix, suffix, other scheme, twice, empty") {
  const auto table = table_with("secret");
  for (const char* header :
       {"Authorization: Bearer secre\r\n", "Authorization: Bearer secrets\r\n",
        "Authorization: Bearer secretsecret\r\n", "Authorization: Basic secret\r\n",
        "Authorization: secret\r\n", "Authorization: Bearer \r\n", "Authorization: Bearer\r\n",
        "Authorization: Bearer secret\r\nAuthorization: Bearer secret\r\n"}) {
    CAPTURE(header);
    CHECK(status_of(answer_bytes(table, wipe(header), from_elsewhere)) == 401);
  }
  CHECK(status_of(answer_bytes(table_with(""), wipe("Authorization: Bearer \r\n"),
                               from_elsewhere)) == 403);
}

TEST_CASE("loopback does not count for a proxied request or one that a web page sends") {
  const auto table = table_with("");
  for (const char* header : {"X-Forwarded-For: 203.0.113.7\r\n", "Forwarded: for=203.0.113.7\r\n",
                             "Origin: http://evil.example\r\n", "X-Real-IP: 203.0.113.7\r\n"}) {
    CAPTURE(header);
    CHECK(status_of(answer_bytes(table, wipe(header), from_loopback)) == 403);
  }
}

TEST_CASE("the token comparison is true for equal strings alone") {
  CHECK(equal_in_constant_time("abc", "abc"));
  CHECK_FALSE(equal_in_constant_time("abc", "abd"));
  CHECK_FALSE(equal_in_constant_time("abc", "ab"));
  CHECK_FALSE(equal_in_constant_time("abc", "abcabc"));
  CHECK_FALSE(equal_in_constant_time("abc", ""));
  CHECK_FALSE(equal_in_constant_time("", "x"));
}

TEST_CASE("a table with two routes of one method and path, or a relative path, is refused") {
  auto twice = example_routes(std::make_shared<kept_responders>());
  twice.push_back(twice.front());
  const auto refused = route_table::build(twice, "");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().detail == "route GET /hello is defined twice");
  std::vector<route> relative = {twice.front()};
  relative[0].path = "hello";
  CHECK_FALSE(route_table::build(relative, ""));
}

TEST_CASE("openapi.json describes the routes that are served and none besides") {
  const auto table = table_with("");
  const auto answer = answer_bytes(table, simple_request("GET", "/openapi.json"), from_loopback);
  REQUIRE(status_of(answer) == 200);
  const auto document = boost::json::parse(body_of(answer)).as_object();
  CHECK(document.at("openapi") == "3.0.3");
  const auto& paths = document.at("paths").as_object();
  const auto routes = example_routes(std::make_shared<kept_responders>());
  CHECK(paths.size() == routes.size() + 1);
  for (const auto& known : routes) {
    CAPTURE(known.path);
    REQUIRE(paths.contains(known.path));
    const auto& operations = paths.at(known.path).as_object();
    CHECK(operations.size() == 1);
    const bool guarded = operations.begin()->value().as_object().contains("security");
    CHECK(guarded == (known.who == access::destructive));
  }
}

TEST_CASE("targets in absolute form are routed by their path, an asterisk is no route") {
  const auto table = table_with("");
  CHECK(status_of(answer_bytes(table, simple_request("GET", "http://kvd/hello?x=1"),
                               from_loopback)) == 200);
  CHECK(status_of(answer_bytes(table, simple_request("OPTIONS", "*"), from_loopback)) == 404);
}

TEST_CASE("a path is matched after decoding and exactly: no dot segments, no trailing slash") {
  const auto table = table_with("");
  CHECK(status_of(answer_bytes(table, simple_request("GET", "/hel%6Co"), from_loopback)) == 200);
  for (const char* target : {"/hello/", "/x/../hello", "//hello", "/HELLO", "/hello%00"}) {
    CAPTURE(target);
    CHECK(status_of(answer_bytes(table, simple_request("GET", target), from_loopback)) == 404);
  }
}
