#include "transport/http/request_reader.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "transport/http/http_message.hpp"

namespace kvd::http {

namespace {

namespace beast = boost::beast;
using boost::system::error_code;

constexpr std::size_t read_bytes = 16 << 10;

std::string lower(std::string_view name) {
  std::string out(name);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

struct request_reader::parts {
  beast::flat_buffer buffer{limits::http_header_bytes_max + limits::http_body_bytes_max};
  std::optional<beast::http::request_parser<beast::http::string_body>> parser;
  request taken;
  response refusal;
  std::size_t header_bytes = 0;  // taken by the parser for this request's header
  bool continued = false;
  bool keep_alive = false;
  bool is_head = false;

  state refuse(unsigned status, std::string why) {
    refusal = text_answer(status, std::move(why));
    return state::refused;
  }
  state take();
  state take_target(std::string_view target);
};

request_reader::request_reader() : parts_(std::make_unique<parts>()) {
  next();
}
request_reader::~request_reader() = default;

const request& request_reader::taken() const noexcept {
  return parts_->taken;
}
const response& request_reader::refusal() const noexcept {
  return parts_->refusal;
}
bool request_reader::keep_alive() const noexcept {
  return parts_->keep_alive;
}
bool request_reader::is_head() const noexcept {
  return parts_->is_head;
}

std::span<char> request_reader::room() {
  auto& buffer = parts_->buffer;
  const auto place = buffer.prepare(std::min(read_bytes, buffer.max_size() - buffer.size()));
  return {static_cast<char*>(place.data()), place.size()};
}

void request_reader::commit(std::size_t count) {
  parts_->buffer.commit(count);
}

bool request_reader::started() const noexcept {
  return parts_->parser->got_some() || parts_->buffer.size() > 0;
}

request_reader::state request_reader::parse() {
  auto& buffer = parts_->buffer;
  auto& parser = *parts_->parser;
  // The parser may change its state without taking a byte, but not twice in a row.
  unsigned idle_steps = 0;
  while (true) {
    error_code ec;
    const bool in_header = !parser.is_header_done();
    const auto used = parser.put(buffer.data(), ec);
    buffer.consume(used);
    if (in_header) parts_->header_bytes += used;
    // Beast 1.81 limits what one put() sees of a header, not the header, and asks for more for ever
    // when a line reaches the limit in certain steps; so the sum is checked here.
    const auto unparsed = parser.is_header_done() ? 0 : buffer.size();
    const bool header_too_long = parts_->header_bytes + unparsed > limits::http_header_bytes_max;
    if (ec == beast::http::error::header_limit || header_too_long)
      return parts_->refuse(
          431, fmt::format("the header is over {} bytes\n", limits::http_header_bytes_max));
    idle_steps = used == 0 ? idle_steps + 1 : 0;
    if (ec == beast::http::error::need_more || (!ec && !parser.is_done() && idle_steps > 1)) {
      // A full buffer that still makes no whole chunk header never will.
      if (buffer.size() < buffer.max_size()) return state::need_more;
      return parts_->refuse(400, "malformed request: a chunk header without an end\n");
    }
    if (ec == beast::http::error::body_limit)
      return parts_->refuse(
          413, fmt::format("the body is over {} bytes\n", limits::http_body_bytes_max));
    if (ec) return parts_->refuse(400, fmt::format("malformed request: {}\n", ec.message()));
    if (parser.is_done()) return parts_->take();
    if (buffer.size() == 0) return state::need_more;
  }
}

bool request_reader::wants_continue() {
  auto& parser = *parts_->parser;
  if (parts_->continued || !parser.is_header_done() || parser.is_done()) return false;
  parts_->continued = true;
  return lower(parser.get()[beast::http::field::expect]) == "100-continue";
}

void request_reader::next() {
  auto& parser = parts_->parser.emplace();
  parser.eager(false);  // so that one put() ends where the header does
  parser.header_limit(limits::http_header_bytes_max);
  parser.body_limit(limits::http_body_bytes_max);
  parts_->taken = {};
  parts_->header_bytes = 0;
  parts_->continued = false;
  parts_->keep_alive = false;
  parts_->is_head = false;
}

request_reader::state request_reader::parts::take() {
  auto& message = parser->get();
  keep_alive = message.keep_alive();
  is_head = message.method() == beast::http::verb::head;
  taken.method = std::string(message.method_string());
  for (const auto& field : message) {
    auto& value = taken.headers[lower(field.name_string())];
    // Equal names join, as RFC 9110 says; two Authorization headers so match no token.
    if (!value.empty()) value += ", ";
    value += std::string_view(field.value().data(), field.value().size());
  }
  if (message.version() >= 11 && !taken.headers.contains("host"))
    return refuse(400, "malformed request: an HTTP/1.1 request names its Host\n");
  taken.body = std::move(message.body());
  return take_target(std::string_view(message.target().data(), message.target().size()));
}

request_reader::state request_reader::parts::take_target(std::string_view target) {
  // "OPTIONS *" asks about the server; there is no such route, so it is answered 404.
  if (target == "*") {
    taken.path = target;
    return state::complete;
  }
  auto parsed = boost::urls::parse_origin_form(target);
  if (!parsed) parsed = boost::urls::parse_uri(target);
  if (!parsed)
    return refuse(400, "malformed request: the target is neither a path nor an http URL\n");
  taken.path = parsed->path();
  if (taken.path.empty()) taken.path.push_back('/');
  for (const auto& parameter : parsed->params())
    taken.query[std::string(parameter.key)] = std::string(parameter.value);
  return state::complete;
}

}  // namespace kvd::http
