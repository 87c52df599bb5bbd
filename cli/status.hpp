#pragma once
// kvd status: what a running server holds and does, for people or as JSON.

#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace kvd {

// Exit status: 0, 1 (nobody listens, or the answer makes no sense), 2 (usage).
int status(std::span<const std::string> args);

// The people's view of what GET /status answers. Fields that are missing are left out, so that any
// release of the server can be looked at. errc::io when the text is no JSON object.
result<std::string> describe_status(std::string_view body);

}  // namespace kvd
