#include <array>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.hpp"
#include "transport/http/http_get.hpp"

namespace kvd::http {

namespace {

constexpr auto patience = std::chrono::seconds(20);

// Accepts one connection, reads a request, writes `answer`, and closes unless told to stay.
class one_answer {
public:
  one_answer(std::string answer, bool stay) : answer_(std::move(answer)), stay_(stay) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(listener_, 1) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~one_answer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  const std::string& address() const { return address_; }
  const std::string& request() const { return request_; }

private:
  void serve() {
    const int peer = ::accept(listener_, nullptr, nullptr);
    if (peer < 0) return;
    std::array<char, 4096> chunk{};
    while (request_.find("\r\n\r\n") == std::string::npos) {
      const auto got = ::recv(peer, chunk.data(), chunk.size(), 0);
      if (got <= 0) break;
      request_.append(chunk.data(), static_cast<std::size_t>(got));
    }
    ::send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    // Until the client goes: a server that keeps the connection although it was asked not to.
    if (stay_) ::recv(peer, chunk.data(), chunk.size(), 0);
    ::close(peer);
  }

  const std::string answer_;
  const bool stay_;
  int listener_ = -1;
  std::string address_;
  std::string request_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a GET returns status and body by content length") {
  const system_clock time;
  one_answer server("HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nhello", false);
  const auto answer = get(server.address(), "/ready", time, patience);
  REQUIRE(answer);
  CHECK(answer->status == 503);
  CHECK(answer->body == "hello");
  CHECK(server.request().starts_with("GET /ready HTTP/1.1\r\nHost: 127.0.0.1:"));
}

TEST_CASE("a GET does not wait for a server that keeps the connection after the whole body") {
  const system_clock time;
  one_answer server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true);
  const auto answer = get(server.address(), "/", time, patience);
  REQUIRE(answer);
  CHECK(answer->body == "ok");
}

TEST_CASE("a GET gives up at its deadline when the answer does not come") {
  const system_clock time;
  one_answer server("", true);
  const auto answer = get(server.address(), "/", time, std::chrono::milliseconds(20));
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == errc::cancelled);
}

TEST_CASE("a GET says that nobody listens") {
  const system_clock time;
  std::string address;
  {
    one_answer gone("", false);
    address = gone.address();
  }
  const auto answer = get(address, "/", time, patience);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == errc::unavailable);
  CHECK(answer.error().detail.find(address) != std::string::npos);
}

TEST_CASE("an address without a port is refused by name") {
  const system_clock time;
  for (const auto* wrong : {"localhost", ":80", "localhost:", ""}) {
    const auto answer = get(wrong, "/", time, patience);
    REQUIRE_FALSE(answer);
    CHECK(answer.error().code == errc::invalid_argument);
  }
}

TEST_CASE("a chunked answer is put together") {
  const auto answer = parse_get_answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                       "4;x=y\r\nkvd \r\nA\r\n0123456789\r\n0\r\n\r\n");
  REQUIRE(answer);
  CHECK(answer->body == "kvd 0123456789");
}

TEST_CASE("an answer without a length is what came until the end") {
  const auto answer = parse_get_answer("HTTP/1.0 200 OK\r\nServer: x\r\n\r\nall of it");
  REQUIRE(answer);
  CHECK(answer->body == "all of it");
}

TEST_CASE("answers that are cut short or no HTTP are errors") {
  for (const auto* wrong :
       {"", "HTTP/1.1", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFF\r\nshort\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx\r\n"}) {
    const auto answer = parse_get_answer(wrong);
    REQUIRE_FALSE(answer);
    CHECK(answer.error().code == errc::io);
  }
}

}  // namespace kvd::http
