#include "storage/ring_buffers.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "storage/io_batch.hpp"

namespace kvd {

namespace {

// 4 TiB in full buffers; an entry that is not used costs the kernel 8 bytes.
constexpr unsigned table_entries = 4096;

tl::unexpected<error> refused(const char* call, int number) {
  return fail(errc::io, fmt::format("{}: {}{}", call, errno_text(number),
                                    number == ENOMEM ? " (raise RLIMIT_MEMLOCK)" : ""));
}

}  // namespace

void ring_buffers::forget() noexcept {
  buffers_.clear();
  table_ = false;
}

result<void> ring_buffers::add(io_uring& ring, std::span<std::byte> region) noexcept {
  if (!table_) {
    // Before Linux 5.19 there are no tables that fill up one by one.
    if (const int answer = io_uring_register_buffers_sparse(&ring, table_entries); answer != 0) {
      return refused("a table of registered buffers", -answer);
    }
    table_ = true;
  }
  while (!region.empty()) {
    if (buffers_.size() == table_entries) return refused("registering a buffer", ENOSPC);
    const auto piece = region.first(std::min<std::size_t>(region.size(), buffer_bytes_max));
    const auto number = static_cast<int>(buffers_.size());
    const iovec memory{piece.data(), piece.size()};
    const __u64 tag = 0;
    const int answer = io_uring_register_buffers_update_tag(&ring, static_cast<unsigned>(number),
                                                            &memory, &tag, 1);
    if (answer != 1) return refused("registering a buffer", answer < 0 ? -answer : EIO);
    const auto at = std::upper_bound(buffers_.begin(), buffers_.end(), piece.data(),
                                     [](const std::byte* a, const buffer& b) { return a < b.at; });
    buffers_.insert(at, {piece.data(), piece.size(), number});
    region = region.subspan(piece.size());
  }
  return {};
}

std::optional<int> ring_buffers::holding(const void* at, std::uint64_t bytes) const noexcept {
  const auto* const begin = static_cast<const std::byte*>(at);
  const auto after = std::upper_bound(buffers_.begin(), buffers_.end(), begin,
                                      [](const std::byte* a, const buffer& b) { return a < b.at; });
  if (after == buffers_.begin()) return {};
  const auto& in = *std::prev(after);
  const auto skip = static_cast<std::uint64_t>(begin - in.at);
  if (skip > in.bytes || bytes > in.bytes - skip) return {};
  return in.number;
}

}  // namespace kvd
