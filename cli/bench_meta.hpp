#pragma once
// kvd bench meta: how fast a metaserver takes announcements and answers prefix queries, how long
// queries take while a node is removed, and what an entry costs. Beside another one if asked to.

#include <span>
#include <string>

namespace kvd {

// Exit status: 0, 1 (a wrong answer or a refusal), 2 (usage).
int bench_meta(std::span<const std::string> args);

}  // namespace kvd
