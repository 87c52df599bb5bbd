#pragma once
// kvd bench rpc: how long a prefix query of many hashes takes while engines save.

#include <span>
#include <string>

namespace kvd {

// Exit status: 0, 1 (a wrong answer or a refusal), 2 (usage).
int bench_rpc(std::span<const std::string> args);

}  // namespace kvd
