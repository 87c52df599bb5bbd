#pragma once
// Requests on a file that one waits for: starting, closing and checking, never the data path.
//
// The memory that a request names stays until wait() returned. Owner: the file's thread.

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "storage/block_file.hpp"

namespace kvd {

class io_batch {
public:
  explicit io_batch(block_file& file) noexcept : file_(file) {}
  io_batch(const io_batch&) = delete;
  io_batch& operator=(const io_batch&) = delete;

  void read(std::uint64_t offset, std::span<std::byte> into);
  void write(std::uint64_t offset, std::span<std::byte> from);
  void sync();
  // Returns once all are done, with the first error; forgets them. `what` begins its detail.
  result<void> wait(std::string_view what);
  // The same, with an errno value, or 0, for each request in the order of the calls.
  std::vector<int> wait_each();

  std::uint64_t bytes_read() const noexcept { return bytes_read_; }

private:
  struct request {
    file_io io;
    io_piece piece;
    int error = 0;
    io_batch* batch = nullptr;
  };
  void start(file_io::kind what, std::uint64_t offset, std::span<std::byte> bytes);

  block_file& file_;
  std::deque<request> requests_;
  std::size_t running_ = 0;
  std::uint64_t bytes_read_ = 0;
};

// "No space left on device", and the like.
std::string errno_text(int error);

}  // namespace kvd
