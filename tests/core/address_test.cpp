#include "core/address.hpp"

#include <string>
#include <utility>

#include <doctest/doctest.h>

namespace kvd {
namespace {

TEST_CASE("an address is a name, an IPv4 or a bracketed IPv6 host, and a port") {
  for (const auto* text : {"127.0.0.1:50055", "0.0.0.0:0", "[::1]:9091", "[fe80::1]:65535",
                           "node-7.rack_2.example:80", "localhost:1"}) {
    CAPTURE(text);
    const auto where = parse_address(text);
    REQUIRE(where);
    CHECK(where->to_string() == text);
  }
  CHECK(parse_address(" 127.0.0.1:1 ")->to_string() == "127.0.0.1:1");
}

TEST_CASE("a bad address is refused by the part that is wrong") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "empty"},
      {"localhost", "the port is missing"},
      {"127.0.0.1:", "the port is missing"},
      {"127.0.0.1:http", "the port 'http' is not a number from 0 to 65535"},
      {"127.0.0.1:65536", "the port '65536' is not a number"},
      {"127.0.0.1:-1", "the port '-1' is not a number"},
      {"127.0.0.1: 1", "the port ' 1' is not a number"},
      {":50055", "the host is missing"},
      {"256.0.0.1:1", "the host is not an IPv4 address"},
      {"127.1:1", "the host is not an IPv4 address"},
      {"::1:50055", "IPv6 address without brackets"},
      {"[::1]", "the port is missing"},
      {"[::1]50055", "the port is missing"},
      {"[::1:50055", "lacks its closing ]"},
      {"[localhost]:1", "not an IPv6 address"},
      {"[]:1", "the host is missing"},
      {"a b:1", "neither a name nor an address"},
      {"http://127.0.0.1:1", "the scheme does not belong here"},
  };
  for (const auto& [text, why] : cases) {
    CAPTURE(text);
    const auto where = parse_address(text);
    REQUIRE_FALSE(where);
    CAPTURE(where.error().detail);
    CHECK(where.error().detail.find(why) != std::string::npos);
  }
  CHECK_FALSE(parse_address(std::string(254, 'a') + ":1"));
}

TEST_CASE("loopback and unspecified hosts are told apart from routable ones") {
  for (const auto* text : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"}) {
    CAPTURE(text);
    CHECK(parse_address(text)->is_loopback());
    CHECK_FALSE(parse_address(text)->is_unspecified());
  }
  for (const auto* text : {"0.0.0.0:1", "[::]:1", "[0:0::0]:1"}) {
    CAPTURE(text);
    CHECK(parse_address(text)->is_unspecified());
    CHECK_FALSE(parse_address(text)->is_loopback());
  }
  CHECK_FALSE(parse_address("10.0.0.1:1")->is_loopback());
  CHECK_FALSE(parse_address("[fe80::1]:1")->is_loopback());
}

TEST_CASE("an endpoint is http or https with host and port and nothing behind") {
  CHECK(parse_endpoint_url("http://127.0.0.1:4317")->port == 4317);
  CHECK(parse_endpoint_url("https://[::1]:4317/")->v6);
  for (const auto* text : {"", "127.0.0.1:4317", "ftp://a:1", "http://a", "http://a:0",
                           "http://a:1/v1", "http://u@a:1", "http://", "http:///"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_endpoint_url(text));
  }
}

}  // namespace
}  // namespace kvd
