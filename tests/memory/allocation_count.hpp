#pragma once
// How often the calling thread called operator new, for tests that a path allocates nothing.

#include <cstddef>

namespace kvd {

std::size_t allocations_of_this_thread() noexcept;

}  // namespace kvd
