#pragma once
// Opens the file of an SSD tier: locks it, gives it its size, and picks how it is read and written.
//
//   look at the path --> open --> lock --> wipe, grow --> alignment, direct I/O --> backend
//
// Nothing is written before the lock is held. Only a regular file under its own name is taken: no
// link, no device. A file that was made here and cannot be given its size is removed again.
// Blocking calls, of minutes where a file system must write zeros: call it while starting. Errors:
// invalid_argument for the path, unavailable when the file is in use, limit_exceeded for the free
// space, io for what the operating system refused.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/error.hpp"
#include "storage/block_file.hpp"

namespace kvd {

enum class file_backend : std::uint8_t { best, uring, threads };

struct open_options {
  std::uint64_t bytes = 0;       // wanted, a multiple of 4096; 0: as many as it has
  bool wipe = false;             // discard what it holds; the only way to a smaller file
  std::uint64_t free_floor = 0;  // bytes that growing leaves free on the file system
  file_backend backend = file_backend::best;
  bool direct = true;     // false: through the page cache even where it could be bypassed
  unsigned depth = 64;    // operations at once with io_uring
  unsigned threads = 16;  // with threads
  std::span<const std::span<std::byte>> regions = {};  // memory to register; outlives the file
  bool vectored = true;  // false: as with a kernel whose fixed operations take one run
};

// By what a file is known again.
struct file_identity {
  std::string path;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
};

struct opened_file {
  std::unique_ptr<block_file> file;
  file_identity identity;
  bool created = false;
  bool direct = false;
  std::size_t registered_buffers = 0;
  // Why it is not io_uring, direct, with registered buffers: texts with errno's, joined by "; ".
  std::string why_not;
};

result<opened_file> open_block_file(const std::string& path, const open_options& how);

// A stat() call: not_found when the path leads to no file or another one, io when the file is
// shorter than it was.
result<void> file_health(const file_identity& of);

}  // namespace kvd
