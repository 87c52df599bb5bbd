#include "actors/http_answers.hpp"

#include <fmt/format.h>

namespace kvd::http_answers {

http::response answer(unsigned status, std::string_view content_type, std::string body) {
  http::response out;
  out.status = status;
  out.content_type = content_type;
  out.body = std::move(body);
  return out;
}

http::response json_answer(unsigned status, const json::object& body) {
  return answer(status, json_type, json::serialize(body) + "\n");
}

unsigned http_status(errc code) {
  switch (code) {
  case errc::invalid_argument: return 400;
  case errc::permission_denied: return 403;
  case errc::instance_missing:
  case errc::not_found: return 404;
  case errc::limit_exceeded: return 429;
  case errc::unavailable: return 503;
  case errc::cancelled: return 504;
  default: return 500;
  }
}

http::response error_answer(const error& failure) {
  return answer(http_status(failure.code), text_type,
                fmt::format("{}: {}\n", name(failure.code), failure.detail));
}

json::array strings(const std::vector<std::string>& from) {
  json::array out;
  out.reserve(from.size());
  for (const auto& each : from)
    out.emplace_back(each);
  return out;
}

http::route get(std::string path, std::string summary, answers known, handler handle) {
  http::route out;
  out.method = "GET";
  out.path = std::move(path);
  out.summary = std::move(summary);
  out.answers = std::move(known);
  out.handle = std::move(handle);
  return out;
}

http::route destructive_post(std::string path, std::string summary, answers known, handler handle) {
  auto out = get(std::move(path), std::move(summary), std::move(known), std::move(handle));
  out.method = "POST";
  out.who = http::access::destructive;
  return out;
}

}  // namespace kvd::http_answers
