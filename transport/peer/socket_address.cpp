#include "transport/peer/socket_address.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

namespace kvd {

namespace {

bool usable(const sockaddr* at) {
  if (at == nullptr) return false;
  if (at->sa_family == AF_INET) return true;
  if (at->sa_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(at)->sin6_addr;
  return !IN6_IS_ADDR_LINKLOCAL(&v6);
}

void set_number(int fd, int level, int option, int value) noexcept {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

std::uint16_t socket_address::port() const noexcept {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void socket_address::set_port(std::uint16_t port) noexcept {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  }
}

std::string socket_address::host() const {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(get(), bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string socket_address::to_string() const {
  const bool v6 = family() == AF_INET6;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host(), v6 ? "]" : "", port());
}

result<std::vector<socket_address>> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    hints.ai_flags = AI_ADDRCONFIG;
    failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  }
  if (failed != 0) {
    return fail(errc::not_found, fmt::format("host {}: {}", host, ::gai_strerror(failed)));
  }
  std::vector<socket_address> out;
  for (const auto* at = found; at != nullptr; at = at->ai_next) {
    socket_address next;
    std::memcpy(&next.storage, at->ai_addr, at->ai_addrlen);
    next.bytes = at->ai_addrlen;
    next.set_port(port);
    out.push_back(next);
  }
  ::freeaddrinfo(found);
  return out;
}

std::vector<network_device> network_devices() {
  std::vector<network_device> out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return out;
  for (const auto* at = all; at != nullptr; at = at->ifa_next) {
    if ((at->ifa_flags & IFF_UP) == 0 || !usable(at->ifa_addr)) continue;
    auto device = std::find_if(out.begin(), out.end(),
                               [&](const network_device& d) { return d.name == at->ifa_name; });
    if (device == out.end()) {
      out.push_back({at->ifa_name, {}, (at->ifa_flags & IFF_LOOPBACK) != 0});
      device = out.end() - 1;
    }
    socket_address next;
    next.bytes = at->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&next.storage, at->ifa_addr, next.bytes);
    device->addresses.push_back(next);
  }
  ::freeifaddrs(all);
  for (auto& device : out) {
    std::stable_partition(device.addresses.begin(), device.addresses.end(),
                          [](const socket_address& a) { return a.family() == AF_INET; });
  }
  return out;
}

owned_fd stream_socket(int family) noexcept {
  owned_fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd) tune_stream(fd.get());
  return fd;
}

void tune_stream(int fd) noexcept {
  set_number(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_number(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_number(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_number(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_number(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  // Bytes of ours that nobody acknowledges; keepalive is off while there are such.
  set_number(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
}

}  // namespace kvd
