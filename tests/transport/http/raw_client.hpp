#pragma once
// A blocking TCP client that speaks in bytes, so that tests can be as rude as real clients.

#include <cstdint>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace kvd::http::test {

class raw_client {
public:
  explicit raw_client(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  ~raw_client() { close(fd_); }

  bool connected() const { return connected_; }

  // False once the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  void finish_sending() { shutdown(fd_, SHUT_WR); }

  // Until the server closes.
  std::string read_all() {
    while (more()) {
    }
    return std::exchange(in_, {});
  }

  // One message with a Content-Length; empty if the server closed before it was whole.
  std::string read_message() {
    while (true) {
      const auto header_end = in_.find("\r\n\r\n");
      if (header_end != std::string::npos) {
        const auto field = in_.find("Content-Length: ");
        const auto body = field < header_end ? std::stoul(in_.substr(field + 16)) : 0UL;
        if (in_.size() >= header_end + 4 + body) {
          auto message = in_.substr(0, header_end + 4 + body);
          in_.erase(0, message.size());
          return message;
        }
      }
      if (!more()) return {};
    }
  }

private:
  bool more() {
    char chunk[4096];
    const auto got = recv(fd_, chunk, sizeof(chunk), 0);
    if (got <= 0) return false;
    in_.append(chunk, static_cast<std::size_t>(got));
    return true;
  }

  int fd_;
  bool connected_ = false;
  std::string in_;
};

inline int status_of(std::string_view message) {
  return message.starts_with("HTTP/1.1 ") ? std::atoi(std::string(message.substr(9, 3)).c_str())
                                          : 0;
}

inline std::string body_of(std::string_view message) {
  const auto end = message.find("\r\n\r\n");
  return end == std::string_view::npos ? std::string() : std::string(message.substr(end + 4));
}

inline std::string simple_request(std::string_view method, std::string_view target) {
  return std::string(method) + " " + std::string(target) + " HTTP/1.1\r\nHost: kvd\r\n\r\n";
}

}  // namespace kvd::http::test
