#pragma once
// Answers as bytes, and the plain text answers that the server gives itself.

#include <string>
#include <string_view>

#include "transport/http/http_server.hpp"

namespace kvd::http {

// "Not Found"; "Unknown" for a status that kvd does not use.
std::string_view reason_phrase(unsigned status) noexcept;

response text_answer(unsigned status, std::string body);

struct rendering {
  bool with_body;   // false for the answer to a HEAD
  bool keep_alive;  // what the Connection header says
};
// Status line, headers and body.
std::string render(const response& answer, rendering how);

}  // namespace kvd::http
