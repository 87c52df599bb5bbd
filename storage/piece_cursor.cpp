#include "storage/piece_cursor.hpp"

#include <algorithm>
#include <cerrno>

namespace kvd {

namespace {

// The kernel moves at most 2 GiB less a page in one call; a limit of our own stays aligned.
constexpr std::uint64_t call_bytes_max = std::uint64_t{1} << 30;
// An interrupted or refused call is made again, but a file that never moves is broken.
constexpr unsigned idle_calls_max = 1000;

}  // namespace

int refusal_of(const file_io& io, std::uint64_t file_bytes, std::uint32_t alignment) noexcept {
  if (io.what == file_io::kind::sync) return 0;
  std::uint64_t bits = io.offset;
  std::uint64_t total = 0;
  for (const auto& piece : io.pieces) {
    bits |= piece.bytes | reinterpret_cast<std::uintptr_t>(piece.at);
    if (piece.bytes > ~std::uint64_t{0} - total) return EINVAL;
    total += piece.bytes;
  }
  if ((bits & (alignment - 1)) != 0) return EINVAL;
  if (io.offset > file_bytes || total > file_bytes - io.offset) {
    return io.what == file_io::kind::read ? ENODATA : EFBIG;
  }
  return 0;
}

piece_cursor::piece_cursor(file_io::kind what, std::uint64_t offset,
                           std::span<const io_piece> pieces, std::uint32_t alignment) noexcept
    : pieces_(pieces), what_(what), offset_(offset), alignment_(alignment) {
  advance(0);  // over leading empty pieces
}

std::size_t piece_cursor::gather(std::span<iovec> out) const noexcept {
  std::size_t count = 0;
  std::uint64_t total = 0;
  for (std::size_t i = piece_; i < pieces_.size() && total < call_bytes_max; ++i) {
    const auto skip = i == piece_ ? within_ : 0;
    auto* const at = pieces_[i].at + skip;
    const auto bytes = std::min(pieces_[i].bytes - skip, call_bytes_max - total);
    if (bytes == 0) continue;
    if (count > 0 &&
        static_cast<std::byte*>(out[count - 1].iov_base) + out[count - 1].iov_len == at) {
      out[count - 1].iov_len += bytes;
    } else if (count < out.size()) {
      out[count++] = {at, bytes};
    } else {
      break;
    }
    total += bytes;
  }
  return count;
}

std::optional<int> piece_cursor::take(std::int64_t result) noexcept {
  if (result < 0) {
    const auto error = static_cast<int>(-result);
    // The kernel cancels what a thread sent to a ring when the thread ends; the request is not
    // over.
    if (error != EINTR && error != EAGAIN && error != ECANCELED) return error;
    if (++idle_calls_ > idle_calls_max) return error;
    return {};
  }
  if (what_ == file_io::kind::sync) return 0;
  // Direct I/O goes on at an aligned offset only; bytes behind it are moved twice.
  const auto moved = static_cast<std::uint64_t>(result) / alignment_ * alignment_;
  if (moved == 0) {
    if (what_ == file_io::kind::read) return ENODATA;
    if (++idle_calls_ > idle_calls_max) return EIO;
    return {};
  }
  idle_calls_ = 0;
  advance(moved);
  if (finished()) return 0;
  return {};
}

void piece_cursor::advance(std::uint64_t bytes) noexcept {
  offset_ += bytes;
  while (piece_ < pieces_.size()) {
    const auto left = pieces_[piece_].bytes - within_;
    if (bytes < left) {
      within_ += bytes;
      return;
    }
    bytes -= left;
    within_ = 0;
    ++piece_;
  }
}

}  // namespace kvd
