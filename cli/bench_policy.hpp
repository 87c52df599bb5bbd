#pragma once
// `kvd bench policy`: hit ratios of the eviction policies on recorded traces.

#include <span>
#include <string>

namespace kvd {

// `args` is what follows `bench policy`. The exit status: 0, or 2 for a bad option or trace; every
// problem found is printed to stderr.
int bench_policy(std::span<const std::string> args);

}  // namespace kvd
