#pragma once
// `kvd bench ssd`: reads and writes of a file through the SSD tier's own backend, beside fio.

#include <span>
#include <string>

namespace kvd {

// Gets the arguments after `bench ssd`; returns the exit status (see cli/bench.hpp).
int bench_ssd(std::span<const std::string> args);

}  // namespace kvd
