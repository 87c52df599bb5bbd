#pragma once
// Opens the files of the SSD tier as the options say, and logs what each turned out to be.

#include <vector>

#include "actors/server_options.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "storage/ssd_tier.hpp"

namespace kvd {

// One path and one shard: the path is the file. Otherwise each path is a folder that holds
// shard-000000.dat and so on. The error names the file.
result<std::vector<ssd_tier::opened_file>> open_ssd_files(const server_options& options,
                                                          random_source& random, const clock& time);

}  // namespace kvd
