#pragma once
// Addresses as the kernel takes them, sockets for bulk, and which network devices there are.
//
// Any thread. resolve() asks the resolver for names, which may take seconds; literals never do.

#include <cstdint>
#include <string>
#include <vector>

#include <sys/socket.h>

#include "core/error.hpp"
#include "transport/peer/event_loop.hpp"

namespace kvd {

struct socket_address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const noexcept { return storage.ss_family; }
  std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
  std::string to_string() const;  // with the port
  std::string host() const;       // without
};

// All that the host means, in the resolver's order; at least one. not_found otherwise.
result<std::vector<socket_address>> resolve(const std::string& host, std::uint16_t port);

// A device that is up and has an address that others can use.
struct network_device {
  std::string name;
  std::vector<socket_address> addresses;  // IPv4 first; no link-local ones
  bool loopback = false;
};
std::vector<network_device> network_devices();

// Non-blocking, close-on-exec, no delay, with the keepalive that notices a dead network within five
// seconds (a hung process is for deadlines to notice). Bad: the kernel refuses.
owned_fd stream_socket(int family) noexcept;
void tune_stream(int fd) noexcept;

}  // namespace kvd
