#pragma once
// How far a request has come: what its next system call moves, and what that call's result means.
//
// Both backends of real files carry requests through here, so that short transfers, interruptions
// and the end of the file mean the same in both. Nothing allocates, nothing waits.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <sys/uio.h>

#include "storage/block_file.hpp"

namespace kvd {

// Why the file cannot even try: EINVAL for what is not aligned, ENODATA for a read and EFBIG for a
// write past the file's end; 0 otherwise.
int refusal_of(const file_io& io, std::uint64_t file_bytes, std::uint32_t alignment) noexcept;

class piece_cursor {
public:
  piece_cursor() = default;
  // REQUIRES: refusal_of(io) is 0.
  piece_cursor(const file_io& io, std::uint32_t alignment) noexcept
      : piece_cursor(io.what, io.offset, io.pieces, alignment) {}
  piece_cursor(file_io::kind what, std::uint64_t offset, std::span<const io_piece> pieces,
               std::uint32_t alignment) noexcept;

  bool finished() const noexcept { return piece_ == pieces_.size(); }
  std::uint64_t offset() const noexcept { return offset_; }
  // Fills `out` with what comes next, memory that touches merged, and says how many it used.
  std::size_t gather(std::span<iovec> out) const noexcept;
  // Takes the result of the call, bytes or a negative errno. The request's error (0: all moved),
  // or nothing when the call has to be made again with what gather() then says.
  std::optional<int> take(std::int64_t result) noexcept;

private:
  void advance(std::uint64_t bytes) noexcept;

  std::span<const io_piece> pieces_;
  file_io::kind what_ = file_io::kind::read;
  std::uint64_t offset_ = 0;
  std::size_t piece_ = 0;     // the first that is not done
  std::uint64_t within_ = 0;  // bytes of it that are
  std::uint32_t alignment_ = 1;
  unsigned idle_calls_ = 0;  // in a row that moved nothing
};

}  // namespace kvd
