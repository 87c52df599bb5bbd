#pragma once
// The lock that keeps two processes off one file, and who holds it.
//
// flock(): it belongs to the open file, ends with it or with the process, and another open() of the
// same process meets it too.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace kvd {

// Takes the file for this handle alone; waits some seconds for what a process that has ended still
// holds. unavailable: somebody else holds it; the detail names the
// process where the kernel tells.
result<void> lock_file(int fd, const std::string& path);

// The process that holds a flock() on an inode, by the text of /proc/locks; 0: none is listed.
std::int64_t flock_holder(std::string_view proc_locks, std::uint64_t device,
                          std::uint64_t inode) noexcept;

}  // namespace kvd
