#pragma once
// `kvd bench net`: reads from another process' pool over each link, beside iperf3 and memcpy.

#include <span>
#include <string>

namespace kvd {

// Gets the arguments after `bench net`; returns the exit status (see cli/bench.hpp).
int bench_net(std::span<const std::string> args);

}  // namespace kvd
