#include "memory/reserved_array.hpp"

namespace kvd {

void* reserve_address_space(std::size_t bytes) noexcept {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  // Records are touched one by one; a huge page for each would charge far more than is used.
  ::madvise(at, bytes, MADV_NOHUGEPAGE);
  return at;
}

}  // namespace kvd
