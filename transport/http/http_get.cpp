#include "transport/http/http_get.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace kvd::http {

namespace {

constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;  // a /status is some tens of KiB

struct socket_fd {
  int fd = -1;
  explicit socket_fd(int open_fd) noexcept : fd(open_fd) {}
  socket_fd(socket_fd&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  socket_fd& operator=(socket_fd&&) = delete;
  ~socket_fd() {
    if (fd >= 0) ::close(fd);
  }
};

struct host_and_port {
  std::string host;
  std::string port;
};

std::optional<host_and_port> split(std::string_view address) {
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == address.size()) return {};
  auto host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host_and_port{std::string(host), std::string(address.substr(colon + 1))};
}

struct deadline_at {
  const clock& time;
  time_point end;
  // Milliseconds for poll(2); 0 once the deadline has passed.
  int left_ms() const noexcept {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - time.now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 1'000'000));
  }
};

// Waits until the socket is ready for `events`; false when the deadline passed.
bool ready(int fd, short events, const deadline_at& until) noexcept {
  for (;;) {
    pollfd waiting{fd, events, 0};
    const int left = until.left_ms();
    const int count = ::poll(&waiting, 1, left);
    if (count > 0) return true;
    if (count == 0 || left == 0) return false;
    if (errno != EINTR) return true;  // the following call reports it
  }
}

result<socket_fd> connect_to(std::string_view address, const deadline_at& until) {
  const auto parts = split(address);
  if (!parts) {
    return fail(errc::invalid_argument, fmt::format("`{}` is not HOST:PORT", address));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found);
  if (failed != 0) {
    return fail(errc::invalid_argument,
                fmt::format("`{}` cannot be resolved: {}", address, ::gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  int last = ECONNREFUSED;
  for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
    socket_fd peer(
        ::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    if (peer.fd < 0) {
      last = errno;
      continue;
    }
    int code = ::connect(peer.fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (code == EINPROGRESS) {
      if (!ready(peer.fd, POLLOUT, until)) {
        return fail(errc::cancelled, fmt::format("{} does not answer the connection", address));
      }
      socklen_t size = sizeof code;
      ::getsockopt(peer.fd, SOL_SOCKET, SO_ERROR, &code, &size);
    }
    if (code == 0) return peer;
    last = code;
  }
  return fail(errc::unavailable,
              fmt::format("nobody listens at {}: {}", address, std::strerror(last)));
}

result<void> send_all(int fd, std::string_view bytes, const deadline_at& until) {
  while (!bytes.empty()) {
    if (!ready(fd, POLLOUT, until))
      return fail(errc::cancelled, "the request was not taken in time");
    const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return fail(errc::io, fmt::format("sending the request: {}", std::strerror(errno)));
    }
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  for (auto& c : out)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// The value of a header in the head (status line excluded), or nothing.
std::optional<std::string> header(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const auto end = std::min(head.find("\r\n"), head.size());
    const auto line = head.substr(0, end);
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && in_lower_case(line.substr(0, colon)) == name) {
      auto value = line.substr(colon + 1);
      while (!value.empty() && value.front() == ' ')
        value.remove_prefix(1);
      while (!value.empty() && value.back() == ' ')
        value.remove_suffix(1);
      return std::string(value);
    }
    head.remove_prefix(std::min(end + 2, head.size()));
  }
  return {};
}

std::optional<std::size_t> number(std::string_view text, int base) {
  std::size_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (code != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

result<std::string> unchunk(std::string_view rest) {
  std::string body;
  for (;;) {
    const auto end = rest.find("\r\n");
    if (end == std::string_view::npos) return fail(errc::io, "the chunked answer was cut short");
    const auto size = number(rest.substr(0, std::min(end, rest.find(';'))), 16);
    if (!size) return fail(errc::io, "the answer holds a chunk without a size");
    rest.remove_prefix(end + 2);
    if (*size == 0) return body;
    if (*size > rest.size() || rest.size() - *size < 2) {
      return fail(errc::io, "the chunked answer was cut short");
    }
    body.append(rest.substr(0, *size));
    rest.remove_prefix(*size + 2);
  }
}

// Whether the announced body is all there. Without an announcement only the connection's end tells.
bool whole(std::string_view raw) {
  const auto head_end = raw.find("\r\n\r\n");
  if (head_end == std::string_view::npos) return false;
  const auto length = header(raw.substr(0, head_end + 2), "content-length");
  const auto bytes = length ? number(*length, 10) : std::nullopt;
  return bytes && raw.size() - head_end - 4 >= *bytes;
}

// Everything until the answer is whole or the server closes, as the request asks it to.
result<std::string> receive_all(int fd, const deadline_at& until) {
  std::string all;
  char chunk[16384];
  for (;;) {
    if (!ready(fd, POLLIN, until)) return fail(errc::cancelled, "the answer did not end in time");
    const auto got = ::recv(fd, chunk, sizeof chunk, 0);
    if (got == 0) return all;
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return fail(errc::io, fmt::format("reading the answer: {}", std::strerror(errno)));
    }
    if (got > 0) all.append(chunk, static_cast<std::size_t>(got));
    if (all.size() > answer_bytes_max) {
      return fail(errc::limit_exceeded,
                  fmt::format("the answer is longer than {} bytes", answer_bytes_max));
    }
    if (whole(all)) return all;
  }
}

}  // namespace

result<get_answer> parse_get_answer(std::string_view raw) {
  const auto head_end = raw.find("\r\n\r\n");
  const auto line_end = raw.find("\r\n");
  if (head_end == std::string_view::npos || !raw.starts_with("HTTP/1.") || line_end < 12 ||
      raw[8] != ' ') {
    return fail(errc::io, "the answer is not HTTP/1.1");
  }
  get_answer answer;
  const auto status = number(raw.substr(9, 3), 10);
  if (!status) return fail(errc::io, "the answer has no status code");
  answer.status = static_cast<unsigned>(*status);
  const auto head = raw.substr(line_end + 2, head_end + 2 - std::min(head_end + 2, line_end + 2));
  const auto rest = raw.substr(head_end + 4);
  if (const auto coding = header(head, "transfer-encoding"); coding && *coding == "chunked") {
    auto body = unchunk(rest);
    if (!body) return tl::unexpected(std::move(body.error()));
    answer.body = std::move(*body);
    return answer;
  }
  answer.body = rest;
  if (const auto text = header(head, "content-length")) {
    const auto length = number(*text, 10);
    if (!length) return fail(errc::io, "the answer's Content-Length is no number");
    if (*length > rest.size()) {
      return fail(errc::io,
                  fmt::format("the answer was cut short: {} of {} bytes", rest.size(), *length));
    }
    answer.body.resize(*length);
  }
  return answer;
}

result<get_answer> get(std::string_view address, std::string_view path, const clock& time,
                       std::chrono::milliseconds timeout) {
  const deadline_at until{time, time.now() + timeout};
  const auto peer = connect_to(address, until);
  if (!peer) return tl::unexpected(peer.error());
  const auto request = fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nConnection: close\r\n\r\n", path, address);
  if (auto sent = send_all(peer->fd, request, until); !sent) return tl::unexpected(sent.error());
  const auto raw = receive_all(peer->fd, until);
  if (!raw) return tl::unexpected(raw.error());
  return parse_get_answer(*raw);
}

}  // namespace kvd::http
