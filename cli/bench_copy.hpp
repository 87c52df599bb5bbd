#pragma once
// kvd bench copy: how fast Save and Load move blocks through the gRPC path, beside plain memcpy.

#include <span>
#include <string>

namespace kvd {

// Exit status: 0, 1 (wrong bytes or a refusal), 2 (usage).
int bench_copy(std::span<const std::string> args);

}  // namespace kvd
