#pragma once
// One file of the SSD tier, read and written by one thread with many requests on their way.
//
// submit() hands a request over; poll() sends what was handed over, waits for something to finish,
// and calls on_done() of all that did, on the calling thread. A request either moves every byte or
// ends with an error: short reads and writes are carried on inside. Bytes lie where the pieces say,
// in order, from `offset` on.
//
// Owner: one thread calls submit() and poll(); wake() may come from any. A request belongs to the
// file from submit() to on_done(), pieces and bytes included. The destructor first waits for all
// requests and calls their on_done().

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvd {

// Address and size are multiples of the file's alignment.
struct io_piece {
  std::byte* at;
  std::uint64_t bytes;
};

struct file_io {
  // sync makes durable what was written and finished before.
  enum class kind : std::uint8_t { read, write, sync };
  kind what = kind::read;
  std::uint64_t offset = 0;          // multiple of the alignment
  std::span<const io_piece> pieces;  // of any number; empty for sync
  // Called once. `error` is 0 or an errno value; ENODATA when the file ends before the last byte.
  void (*on_done)(file_io& io, int error) noexcept = nullptr;
  void* owner = nullptr;    // the caller's
  file_io* next = nullptr;  // the file's
  int outcome = 0;          // the file's
};

class block_file {
public:
  virtual ~block_file() = default;
  // Never fails: what cannot be done ends with an error in poll().
  virtual void submit(file_io& io) noexcept = 0;
  // Runs the on_done() of what has finished, and returns how many that were. Waits up to `wait`
  // when nothing has; wake() ends the wait.
  virtual std::size_t poll(std::chrono::milliseconds wait) noexcept = 0;
  virtual void wake() noexcept = 0;

  virtual std::uint64_t bytes() const noexcept = 0;      // of the file, fixed while it is open
  virtual std::uint32_t alignment() const noexcept = 0;  // a power of two, 512 to 4096
  // "io_uring", "threads" or "memory"; with ", buffered" where O_DIRECT is not to be had.
  virtual std::string_view backend() const noexcept = 0;
};

}  // namespace kvd
