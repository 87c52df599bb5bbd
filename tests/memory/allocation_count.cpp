#include "tests/memory/allocation_count.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t count = 0;

}  // namespace

// The other forms of operator new end here, except those for over-aligned types.
void* operator new(std::size_t bytes) {
  ++count;
  if (void* at = std::malloc(bytes == 0 ? 1 : bytes)) return at;
  throw std::bad_alloc();
}
void operator delete(void* at) noexcept {
  std::free(at);
}
void operator delete(void* at, std::size_t) noexcept {
  std::free(at);
}

namespace kvd {

std::size_t allocations_of_this_thread() noexcept {
  return count;
}

}  // namespace kvd
