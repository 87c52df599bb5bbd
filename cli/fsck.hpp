#pragma once
// `kvd fsck PATH...`: checks the files of an SSD tier that no server has open.

#include <span>
#include <string>

namespace kvd {

// Gets the arguments after `fsck`. Exit status: 0 sound, 1 not (or not readable), 2 wrong usage.
int fsck_command(std::span<const std::string> args);

}  // namespace kvd
