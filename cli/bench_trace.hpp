#pragma once
// kvd bench trace: engines that live through a recorded trace on host memory, with real bytes.

#include <span>
#include <string>

namespace kvd {

// Exit status: 0, 1 (wrong bytes, or a refusal), 2 (usage, or no such trace).
int bench_trace(std::span<const std::string> args);

}  // namespace kvd
