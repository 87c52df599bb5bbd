#pragma once
// Text that a client sent, made safe to show: in an error, in a log line.

#include <string>
#include <string_view>

namespace kvd {

// `bytes` in single quotes; what is not printable ASCII becomes \xNN, what is beyond 64 bytes is
// left out and said so.
std::string printable(std::string_view bytes);

}  // namespace kvd
