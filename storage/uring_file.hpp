#pragma once
// A file over io_uring: one ring, its completions reaped by the thread that calls poll().
//
// At most `depth` operations are in the kernel; more wait in a queue of their own. A request is one
// operation, or, where enough of its bytes lie in registered memory, one a run of pieces in the
// same buffer and one a run of others: the former are fixed operations, which pin no pages. They
// run at once, and the request ends with the last. After a short transfer, or of more than 1024
// pieces, an operation is followed by the next when it has finished.
//
// Owner: as block_file says. The ring runs completions on the thread that polls (DEFER_TASKRUN); a
// later poll(), or the destructor, may come from another thread only when every request that an
// earlier poll() sent has ended. Regions outlive the file.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <liburing.h>

#include "core/error.hpp"
#include "storage/block_file.hpp"
#include "storage/file_handle.hpp"
#include "storage/piece_cursor.hpp"
#include "storage/ring_buffers.hpp"

namespace kvd {

class uring_file final : public block_file {
public:
  struct options {
    unsigned depth = 64;  // 1 to 1024 operations in the kernel
    // Memory that requests will point at, as in use_memory(). May be empty.
    std::span<const std::span<std::byte>> regions;
    // False: as on a kernel before 6.15, whose fixed operations take one run of memory.
    bool vectored = true;
  };
  static constexpr unsigned depth_max = 1024;

  // Takes `file` when it succeeds. io: this process may not use io_uring, or the kernel's is too
  // old; the detail holds errno's text.
  static result<std::unique_ptr<uring_file>> create(raw_file& file, const options& how);
  ~uring_file() override;
  uring_file(const uring_file&) = delete;
  uring_file& operator=(const uring_file&) = delete;

  void submit(file_io& io) noexcept override;
  std::size_t poll(std::chrono::milliseconds wait) noexcept override;
  void wake() noexcept override { event_.signal(); }

  std::uint64_t bytes() const noexcept override { return file_.bytes; }
  std::uint32_t alignment() const noexcept override { return file_.alignment; }
  std::string_view backend() const noexcept override {
    return file_.direct ? "io_uring" : "io_uring, buffered";
  }

  result<void> use_memory(std::span<std::byte> region) noexcept override;
  io_counts counts() const noexcept override { return counts_; }

  // Why regions are not registered; empty when they are, or when there are none.
  const std::string& registration_refused() const noexcept { return refused_; }

private:
  static constexpr std::size_t pieces_max = 1024;  // IOV_MAX of the kernel
  static constexpr std::size_t runs_max = 8;       // operations of one request
  // Pieces of a request that one operation moves.
  struct run {
    std::span<const io_piece> pieces;
    std::uint64_t bytes = 0;
    std::optional<int> buffer;  // that holds all of them
  };
  // An operation.
  struct slot {
    file_io* io = nullptr;  // null: free
    piece_cursor cursor;
    std::optional<int> buffer;
    std::array<iovec, pieces_max> pieces;
  };

  uring_file() = default;
  int start_ring() noexcept;
  void find_vectored() noexcept;
  std::size_t adopt_ring() noexcept;
  std::size_t fail_all(int error) noexcept;
  std::size_t send() noexcept;
  void send_ready() noexcept;
  std::size_t split(const file_io& io) noexcept;
  bool joins(const run& last, const io_piece& piece, std::optional<int> buffer) const noexcept;
  void prepare(std::uint32_t number, io_uring_sqe* sqe) noexcept;
  void prepare_transfer(slot& of, io_uring_sqe* sqe) noexcept;
  void arm_wake() noexcept;
  void enter(std::chrono::milliseconds wait) noexcept;
  std::size_t reap() noexcept;
  std::size_t take_back_unsent(int error) noexcept;
  std::size_t finish(std::uint32_t number, int error) noexcept;

  raw_file file_;
  wake_event event_;
  io_uring ring_{};
  unsigned depth_ = 0;
  bool started_ = false;        // ring_ is there
  bool single_issuer_ = false;  // only owner_ may enter the ring
  int owner_ = 0;               // thread id; 0: nobody has polled
  bool fixed_file_ = false;
  bool wake_armed_ = false;
  bool woken_ = false;
  int broken_ = 0;          // what the kernel last said to a submission that it can never take
  std::size_t reaped_ = 0;  // completions of the last reap(), of any kind
  std::vector<std::span<std::byte>> regions_;  // registered, or to be
  ring_buffers buffers_;
  std::string refused_;
  bool vectored_ = true;  // fixed operations take many runs of memory
  io_counts counts_;
  std::array<run, runs_max> runs_;  // of the request that split() saw last

  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;   // slots
  std::vector<std::uint32_t> ready_;  // slots whose next operation is to be sent
  std::size_t sent_ = 0;              // operations handed to the ring and not reaped
  file_io* queue_head_ = nullptr;
  file_io* queue_tail_ = nullptr;
  std::size_t busy_ = 0;  // requests between submit() and on_done()
};

}  // namespace kvd
