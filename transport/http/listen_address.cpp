#include "transport/http/listen_address.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/http/port_holder.hpp"

namespace kvd::http {

result<listen_address> parse_listen_address(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return fail(errc::invalid_argument,
                fmt::format("http address '{}' {}; write 127.0.0.1:9091 or [::1]:9091", text, why));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong("has no port");
  auto host = text.substr(0, colon);
  const auto digits = text.substr(colon + 1);
  listen_address out;
  const auto* last = digits.data() + digits.size();
  const auto [end, failure] = std::from_chars(digits.data(), last, out.port);
  if (failure != std::errc() || end != last) return wrong("has no port between 0 and 65535");
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  out.ip = std::string(host);
  in6_addr parsed{};
  if (inet_pton(bracketed ? AF_INET6 : AF_INET, out.ip.c_str(), &parsed) != 1)
    return wrong("has no IP address before the port");
  return out;
}

result<void> check_available(std::string_view text) {
  const auto where = parse_listen_address(text);
  if (!where) return {};
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, where->ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(where->port);
  } else if (inet_pton(AF_INET6, where->ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(where->port);
    size = sizeof(sockaddr_in6);
  } else {
    return {};
  }
  const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  // As the listeners do: a port in TIME_WAIT is free, one with a listener is not.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  const int why = errno;
  ::close(fd);
  if (bound) return {};
  const auto holder = why == EADDRINUSE ? port_holder(where->port) : std::string("nobody");
  return fail(errc::io, fmt::format("cannot listen on {}: {} (held by {})", text,
                                    std::strerror(why), holder));
}

}  // namespace kvd::http
