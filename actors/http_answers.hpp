#pragma once
// What the admin endpoints of all roles are made of: answers with their content types, errors as
// HTTP statuses, and rows of route tables. Pure functions; any thread.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "core/error.hpp"
#include "transport/http/http_server.hpp"

namespace kvd::http_answers {

namespace json = boost::json;

inline constexpr const char* json_type = "application/json";
inline constexpr const char* text_type = "text/plain; charset=utf-8";
// What Prometheus' scraper asks for; without the version it guesses.
inline constexpr const char* exposition_type = "text/plain; version=0.0.4; charset=utf-8";

http::response answer(unsigned status, std::string_view content_type, std::string body);
http::response json_answer(unsigned status, const json::object& body);
unsigned http_status(errc code);
http::response error_answer(const error& failure);
json::array strings(const std::vector<std::string>& from);

using handler = std::function<void(const http::request&, http::responder)>;
using answers = std::vector<std::pair<unsigned, std::string>>;

http::route get(std::string path, std::string summary, answers known, handler handle);
// Loopback or the admin token.
http::route destructive_post(std::string path, std::string summary, answers known, handler handle);

}  // namespace kvd::http_answers
