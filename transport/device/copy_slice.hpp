#pragma once
// Moving the bytes of one chunk, and surviving memory that its owner takes away meanwhile.
//
// An engine may truncate its shared-memory object at any time; touching a page beyond its new end
// raises SIGBUS on the copying thread. The fault guard turns that into `false`: its handler leaves
// the copy with siglongjmp when, and only when, the faulting address lies in the range that this
// thread is copying. Every other SIGBUS goes to the handler that was installed before. The mapping
// is left as it is, so that later copies of the lost pages fail too instead of moving zeros.

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/device/copy_job.hpp"

namespace kvd {

// `bytes` bytes of `ranges`, from byte `skip` of the first one on.
struct copy_slice {
  std::span<const copy_range> ranges;
  std::uint64_t skip = 0;
  std::uint64_t bytes = 0;
};

// Installs the SIGBUS handler of this process, in front of the present one. Any thread, any number
// of times; whoever replaces the handler afterwards takes the guard away.
void install_fault_guard() noexcept;

// Copies the slice; false when a page of either side could not be had. Any thread, without locks
// and allocations. REQUIRES: install_fault_guard() was called, SIGBUS is not blocked here.
[[nodiscard]] bool copy_bytes(const copy_slice& slice) noexcept;

// Stores `value` at `to` in one piece, after everything that this thread stored before; false when
// the page could not be had. `to` is a multiple of 8. REQUIRES: as copy_bytes().
[[nodiscard]] bool store_word(std::int64_t* to, std::int64_t value) noexcept;

}  // namespace kvd
