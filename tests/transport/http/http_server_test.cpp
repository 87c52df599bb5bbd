#include <doctest/doctest.h>

#include <thread>

#include "tests/transport/http/example_routes.hpp"
#include "tests/transport/http/raw_client.hpp"

using namespace kvd;
using namespace kvd::http;
using namespace kvd::http::test;

namespace {

struct running_server {
  std::shared_ptr<kept_responders> kept = std::make_shared<kept_responders>();
  fake_clock time;
  std::unique_ptr<server> it;

  explicit running_server(std::size_t connections_max = limits::http_connections_max) {
    auto started = server::start({.address = "127.0.0.1:0",
                                  .admin_token = {},
                                  .connections_max = connections_max,
                                  .time = &time},
                                 example_routes(kept));
    REQUIRE(started);
    it = std::move(*started);
  }
  std::uint16_t port() const { return it->port(); }

  // The server's one thread has done all that it had to do before this call.
  void settle() {
    raw_client client(port());
    client.send("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    CHECK(status_of(client.read_all()) == 200);
  }
};

std::string ask(std::uint16_t port, std::string_view bytes) {
  raw_client client(port);
  client.send(bytes);
  return client.read_message();
}

}  // namespace

TEST_CASE("a known route answers 200 with its body") {
  running_server server;
  const auto answer = ask(server.port(), simple_request("GET", "/hello"));
  CHECK(status_of(answer) == 200);
  CHECK(body_of(answer) == "hello\n");
}

TEST_CASE("one connection serves many requests, also pipelined ones, in order") {
  running_server server;
  raw_client client(server.port());
  const std::string first = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none";
  const std::string second = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\ntwo";
  client.send(first + second);
  CHECK(body_of(client.read_message()) == "one");
  CHECK(body_of(client.read_message()) == "two");
  client.send(first);
  CHECK(body_of(client.read_message()) == "one");
}

TEST_CASE("a request that comes byte by byte is understood, chunked bodies too") {
  running_server server;
  raw_client client(server.port());
  const std::string bytes =
      "POST /echo?a=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  for (const char& byte : bytes)
    REQUIRE(client.send({&byte, 1}));
  CHECK(body_of(client.read_message()) == "abcde[a=1]");
}

TEST_CASE("Connection: close is honoured, and so is HTTP/1.0's default") {
  running_server server;
  for (const char* bytes : {"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                            "GET /hello HTTP/1.0\r\n\r\n"}) {
    raw_client client(server.port());
    client.send(bytes);
    const auto all = client.read_all();  // returns because the server closes
    CHECK(status_of(all) == 200);
    CHECK(all.find("Connection: close\r\n") != std::string::npos);
  }
}

TEST_CASE("HEAD answers a GET route with the length of the body and no body") {
  running_server server;
  raw_client client(server.port());
  client.send("HEAD /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const auto all = client.read_all();
  CHECK(status_of(all) == 200);
  CHECK(all.find("Content-Length: 6\r\n") != std::string::npos);
  CHECK(all.ends_with("\r\n\r\n"));
}

TEST_CASE("a client that waits for 100 Continue gets it before it sends its body") {
  running_server server;
  raw_client client(server.port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(status_of(client.read_message()) == 100);
  client.send("ok");
  CHECK(body_of(client.read_message()) == "ok");
}

TEST_CASE(
    "a body over the bound is refused with 413 before it is sent, and the connection closes") {
  running_server server;
  raw_client client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n");
  const auto all = client.read_all();
  CHECK(status_of(all) == 413);
  CHECK(body_of(all) == "the body is over 65536 bytes\n");
}

TEST_CASE("a body of exactly the bound is taken") {
  running_server server;
  const std::string body(limits::http_body_bytes_max, 'x');
  const auto answer = ask(server.port(), "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                                             std::to_string(body.size()) + "\r\n\r\n" + body);
  CHECK(body_of(answer) == body);
}

TEST_CASE("a chunked body over the bound is refused with 413") {
  running_server server;
  raw_client client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "2000\r\n" + std::string(0x2000, 'x') + "\r\n";
  for (int i = 0; i < 9; ++i)
    client.send(chunk);
  CHECK(status_of(client.read_all()) == 413);
}

TEST_CASE("a header over the bound is refused with 431, one long line or many") {
  running_server server;
  raw_client one_line(server.port());
  one_line.send("GET /hello HTTP/1.1\r\nHost: a\r\nX: " + std::string(17000, 'x') + "\r\n\r\n");
  CHECK(status_of(one_line.read_all()) == 431);
  raw_client many_lines(server.port());
  std::string bytes = "GET /hello HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 1000; ++i)
    bytes += "X-" + std::to_string(i) + ": some value\r\n";
  many_lines.send(bytes + "\r\n");
  CHECK(status_of(many_lines.read_all()) == 431);
}

TEST_CASE("malformed requests are refused with 400 and do not end the server") {
  running_server server;
  for (const char* bytes :
       {"\x01\x02\x03\r\n\r\n", "GET\r\n\r\n", "GET /hello HTTP/9.9\r\nHost: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    CAPTURE(bytes);
    raw_client client(server.port());
    client.send(bytes);
    CHECK(status_of(client.read_all()) == 400);
  }
  CHECK(status_of(ask(server.port(), simple_request("GET", "/hello"))) == 200);
}

TEST_CASE("query parameters are decoded and the last of equal names wins") {
  running_server server;
  const auto answer = ask(server.port(), simple_request("POST", "/echo?id=a%20b%2Fc&x=1&x=2+3"));
  CHECK(body_of(answer) == "[id=a b/c][x=2 3]");
}

TEST_CASE("a handler that drops its responder or throws answers 500") {
  running_server server;
  CHECK(status_of(ask(server.port(), simple_request("GET", "/lost"))) == 500);
  CHECK(status_of(ask(server.port(), simple_request("GET", "/throws"))) == 500);
}

TEST_CASE("an answer may come later, from another thread, while others are served") {
  running_server server;
  raw_client slow(server.port());
  slow.send(simple_request("GET", "/later"));
  std::vector<responder> kept;
  // Each of these round trips runs after bytes of `slow` were sent, so this ends.
  while ((kept = server.kept->take()).empty())
    CHECK(status_of(ask(server.port(), simple_request("GET", "/hello"))) == 200);
  std::thread([&] { kept[0](plain("at last\n")); }).join();
  CHECK(body_of(slow.read_message()) == "at last\n");
}

TEST_CASE("a client that sends a byte now and then is cut when the request's time is over") {
  running_server server;
  raw_client slow(server.port());
  slow.send("GET /hello HTT");
  CHECK(status_of(ask(server.port(), simple_request("GET", "/hello"))) == 200);
  slow.send("P/1.1\r\nHost");
  server.time.advance(limits::http_request_time_max + std::chrono::seconds(1));
  CHECK(slow.read_all().empty());
}

TEST_CASE("an idle connection outlives the request's time but not the idle time") {
  running_server server;
  raw_client client(server.port());
  client.send(simple_request("GET", "/hello"));
  CHECK(status_of(client.read_message()) == 200);
  server.settle();
  server.time.advance(limits::http_request_time_max + std::chrono::seconds(1));
  client.send(simple_request("GET", "/hello"));
  CHECK(status_of(client.read_message()) == 200);
  server.settle();
  server.time.advance(limits::http_idle_time_max + std::chrono::seconds(1));
  CHECK(client.read_all().empty());
}

TEST_CASE("a handler that never answers is answered for with 504, and its late answer is ignored") {
  running_server server;
  raw_client client(server.port());
  client.send(simple_request("GET", "/later"));
  std::vector<responder> kept;
  while ((kept = server.kept->take()).empty())
    ask(server.port(), simple_request("GET", "/hello"));
  server.time.advance(limits::http_answer_time_max + std::chrono::seconds(1));
  CHECK(status_of(client.read_message()) == 504);
  kept[0](plain("too late"));
  CHECK(client.read_all().empty());
}

TEST_CASE("connections over the bound are told so with 503") {
  running_server server(2);
  raw_client first(server.port()), second(server.port());
  first.send(simple_request("GET", "/hello"));
  second.send(simple_request("GET", "/hello"));
  CHECK(status_of(first.read_message()) == 200);
  CHECK(status_of(second.read_message()) == 200);
  raw_client third(server.port());
  const auto refused = third.read_all();
  CHECK(status_of(refused) == 503);
  CHECK(body_of(refused) == "kvd serves at most 2 HTTP connections\n");
}

TEST_CASE("stop lets an open request finish, refuses new ones, and can be called again") {
  running_server server;
  raw_client open(server.port()), idle(server.port());
  open.send(simple_request("GET", "/later"));
  idle.send(simple_request("GET", "/hello"));
  CHECK(status_of(idle.read_message()) == 200);
  std::vector<responder> kept;
  while ((kept = server.kept->take()).empty())
    ask(server.port(), simple_request("GET", "/hello"));
  const auto port = server.port();
  std::thread stopping([&] { server.it->stop(60'000); });
  CHECK(idle.read_all().empty());  // closed, so the drain has begun
  CHECK_FALSE(raw_client(port).connected());
  kept[0](plain("finished\n"));
  CHECK(body_of(open.read_all()) == "finished\n");
  open.finish_sending();
  stopping.join();
  server.it->stop(0);
}

TEST_CASE("stop without grace cuts open requests, and answers that come afterwards are ignored") {
  running_server server;
  raw_client open(server.port());
  open.send(simple_request("GET", "/later"));
  std::vector<responder> kept;
  while ((kept = server.kept->take()).empty())
    ask(server.port(), simple_request("GET", "/hello"));
  server.it->stop(0);
  CHECK(open.read_all().empty());
  kept[0](plain("nobody is there"));
  server.it.reset();
  server.it = nullptr;
}

TEST_CASE("an address in use is refused with the address and who holds it") {
  running_server server;
  const auto address = "127.0.0.1:" + std::to_string(server.port());
  const auto second = server::start({.address = address, .admin_token = {}}, {});
  REQUIRE_FALSE(second);
  CHECK(second.error().code == errc::io);
  const auto& detail = second.error().detail;
  CAPTURE(detail);
  CHECK(detail.find(address) != std::string::npos);
  CHECK(detail.find("Address already in use") != std::string::npos);
  CHECK(detail.find("pid " + std::to_string(getpid())) != std::string::npos);
  CHECK(detail.find("kvd_transport") != std::string::npos);
}

TEST_CASE("addresses: IPv6 in brackets is served, anything that is no ip:port is refused by name") {
  auto v6 = server::start({.address = "[::1]:0", .admin_token = {}}, {});
  if (v6) {
    CHECK((*v6)->port() != 0);
  } else {
    // A machine without IPv6 says so; it must not be called a wrong address.
    CHECK(v6.error().code == errc::io);
  }
  for (const char* address : {"9091", "", ":9091", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                              "::1:9091", "[127.0.0.1]:9091", "kvd.example:80", "[::1]"}) {
    CAPTURE(address);
    const auto refused = server::start({.address = address, .admin_token = {}}, {});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK(refused.error().detail.find("'" + std::string(address) + "'") != std::string::npos);
  }
}
