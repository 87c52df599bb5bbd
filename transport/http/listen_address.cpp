#include "transport/http/listen_address.hpp"

#include <charconv>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

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

}  // namespace kvd::http
