#include "core/address.hpp"

#include <algorithm>
#include <cstddef>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <fmt/format.h>

#include "core/units.hpp"

namespace kvd {

namespace {

constexpr std::size_t host_bytes_max = 253;  // the longest DNS name

bool is_numeric_host(std::string_view host) noexcept {
  return host.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool is_host_name(std::string_view host) noexcept {
  return std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

bool parses_as(int family, const std::string& host) noexcept {
  in6_addr scratch;
  return ::inet_pton(family, host.c_str(), &scratch) == 1;
}

tl::unexpected<error> refuse_part(std::string_view text, std::string_view part,
                                  std::string_view why) {
  return fail(errc::invalid_argument, fmt::format("{}: the {} {}", in_quotes(text), part, why));
}

result<std::uint16_t> parse_port(std::string_view text, std::string_view port) {
  if (port.empty()) return refuse_part(text, "port", "is missing; write host:port");
  const auto digits =
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  const auto number = digits ? parse_unsigned(port) : result<std::uint64_t>(65536);
  if (!number || *number > 65535) {
    return refuse_part(text, "port",
                       fmt::format("{} is not a number from 0 to 65535", in_quotes(port)));
  }
  return static_cast<std::uint16_t>(*number);
}

result<address> make_address(std::string_view text, std::string_view host, std::string_view port,
                             bool v6) {
  if (host.empty()) return refuse_part(text, "host", "is missing; write host:port");
  if (host.size() > host_bytes_max) return refuse_part(text, "host", "is longer than 253 bytes");
  std::string name(host);
  if (v6 && !parses_as(AF_INET6, name)) return refuse_part(text, "host", "is not an IPv6 address");
  if (!v6 && is_numeric_host(host) && !parses_as(AF_INET, name)) {
    return refuse_part(text, "host", "is not an IPv4 address");
  }
  if (!v6 && !is_host_name(host))
    return refuse_part(text, "host", "is neither a name nor an address");
  const auto number = parse_port(text, port);
  if (!number) return tl::unexpected(number.error());
  return address{std::move(name), *number, v6};
}

}  // namespace

bool address::is_unspecified() const noexcept {
  in6_addr six;
  if (v6) return ::inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six);
  return host == "0.0.0.0";
}

bool address::is_loopback() const noexcept {
  in6_addr six;
  if (v6) return ::inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
  in_addr four;
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  return host == "localhost";
}

std::string address::to_string() const {
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

result<address> parse_address(std::string_view text) {
  const auto whole = trimmed(text);
  if (whole.empty()) return fail(errc::invalid_argument, "the value is empty");
  if (whole.find("://") != std::string_view::npos) {
    return refuse_part(text, "scheme", "does not belong here; write host:port");
  }
  if (whole.front() == '[') {
    const auto close = whole.find(']');
    if (close == std::string_view::npos) return refuse_part(text, "host", "lacks its closing ]");
    const auto rest = whole.substr(close + 1);
    if (rest.empty() || rest.front() != ':') {
      return refuse_part(text, "port", "is missing; write [host]:port");
    }
    return make_address(text, whole.substr(1, close - 1), rest.substr(1), true);
  }
  const auto colon = whole.rfind(':');
  if (colon == std::string_view::npos)
    return refuse_part(text, "port", "is missing; write host:port");
  const auto host = whole.substr(0, colon);
  if (host.find(':') != std::string_view::npos) {
    return refuse_part(text, "host", "is an IPv6 address without brackets; write [host]:port");
  }
  return make_address(text, host, whole.substr(colon + 1), false);
}

result<address> parse_endpoint_url(std::string_view text) {
  auto rest = trimmed(text);
  if (rest.empty()) return fail(errc::invalid_argument, "the value is empty");
  const auto scheme_end = rest.find("://");
  const auto scheme = scheme_end == std::string_view::npos ? "" : rest.substr(0, scheme_end);
  if (scheme != "http" && scheme != "https") {
    return refuse_part(text, "scheme", "must be http or https; write http://host:port");
  }
  rest.remove_prefix(scheme_end + 3);
  if (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  if (rest.find_first_of("/?#@") != std::string_view::npos) {
    return refuse_part(text, "path", "is not accepted; write http://host:port");
  }
  auto where = parse_address(rest);
  if (where && where->port == 0) return refuse_part(text, "port", "must not be 0");
  return where;
}

}  // namespace kvd
