#pragma once
// One file of the SSD tier, read and written by one thread with many requests on their way.
//
// submit() hands a request over; poll() sends what was handed over, waits for something to finish,
// and calls on_done() of all that did, on the calling thread. A request either moves every byte or
// ends with an error: short reads and writes are carried on inside. Bytes lie where the pieces say,
// in order, from `offset` on.
//
// Owner: one thread calls submit(), poll(), use_memory() and counts(); wake() may come from any. A
// request belongs to the file from submit() to on_done(), pieces and bytes included. The destructor
// first waits for all requests and calls their on_done().

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/error.hpp"

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
  void* owner = nullptr;         // the caller's
  file_io* next = nullptr;       // the file's
  int outcome = 0;               // the file's
  std::uint32_t operations = 0;  // the file's: under way
};

// What a file did so far.
struct io_counts {
  std::size_t registered_buffers = 0;
  std::uint64_t operations = 0;        // reads and writes that the kernel was asked for
  std::uint64_t fixed_operations = 0;  // of those, in registered buffers
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
  // Requests will point into this memory, which outlives the file: a backend that can prepares it.
  // Blocks for some milliseconds a GiB. Without it, or when it fails, requests work as well.
  virtual result<void> use_memory(std::span<std::byte>) noexcept {
    return fail(errc::not_configured, "this backend registers no memory");
  }
  virtual io_counts counts() const noexcept { return {}; }

  virtual std::uint64_t bytes() const noexcept = 0;      // of the file, fixed while it is open
  virtual std::uint32_t alignment() const noexcept = 0;  // a power of two, 512 to 4096
  // "io_uring", "threads" or "memory"; with ", buffered" where O_DIRECT is not to be had.
  virtual std::string_view backend() const noexcept = 0;
};

}  // namespace kvd
