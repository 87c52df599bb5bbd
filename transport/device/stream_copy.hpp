#pragma once
// memcpy for bytes that nobody reads soon: large copies go past the caches where the CPU can.

#include <cstddef>
#include <cstdint>

namespace kvd {

// Copies `bytes` bytes; the two ranges do not overlap. Other threads may see the written bytes in
// order only after stream_fence() on this one, which orders every earlier store.
void stream_copy(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept;
void stream_fence() noexcept;

}  // namespace kvd
