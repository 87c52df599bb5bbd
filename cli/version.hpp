#pragma once
// `kvd version [--json]`: what this binary is, for people and for scripts.

#include <span>
#include <string>

namespace kvd {

int version(std::span<const std::string> arguments);

// One line, or a JSON object with the same facts.
std::string describe_version(bool json);

}  // namespace kvd
