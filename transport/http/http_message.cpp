#include "transport/http/http_message.hpp"

#include <fmt/format.h>

namespace kvd::http {

std::string_view reason_phrase(unsigned status) noexcept {
  switch (status) {
  case 200: return "OK";
  case 202: return "Accepted";
  case 400: return "Bad Request";
  case 401: return "Unauthorized";
  case 403: return "Forbidden";
  case 404: return "Not Found";
  case 405: return "Method Not Allowed";
  case 409: return "Conflict";
  case 413: return "Content Too Large";
  case 429: return "Too Many Requests";
  case 431: return "Request Header Fields Too Large";
  case 500: return "Internal Server Error";
  case 503: return "Service Unavailable";
  case 504: return "Gateway Timeout";
  default: return "Unknown";
  }
}

response text_answer(unsigned status, std::string body) {
  response answer;
  answer.status = status;
  answer.body = std::move(body);
  return answer;
}

std::string render(const response& answer, rendering how) {
  auto out = fmt::format("HTTP/1.1 {} {}\r\nServer: kvd\r\nContent-Type: {}\r\n"
                         "Content-Length: {}\r\nConnection: {}\r\n",
                         answer.status, reason_phrase(answer.status), answer.content_type,
                         answer.body.size(), how.keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : answer.headers)
    out += fmt::format("{}: {}\r\n", name, value);
  out += "\r\n";
  if (how.with_body) out += answer.body;
  return out;
}

}  // namespace kvd::http
