#pragma once
// An array whose address never changes and whose memory is only used where it is touched.
//
// Address space for the worst case is reserved once; the kernel gives pages on first use. So tables
// that must not move under concurrent readers need no growth code, and cost what they hold.
//
// T must be usable when all bytes are zero (that is how pages arrive) and trivially destructible.

#include <cstddef>
#include <type_traits>

#include <sys/mman.h>

namespace kvd {

template<class T>
class reserved_array {
public:
  static_assert(std::is_trivially_destructible_v<T>);

  // Aborts when the address space cannot be had: there is no way on without it.
  explicit reserved_array(std::size_t count);
  ~reserved_array() { ::munmap(items_, bytes_); }
  reserved_array(const reserved_array&) = delete;
  reserved_array& operator=(const reserved_array&) = delete;

  T& operator[](std::size_t i) noexcept { return items_[i]; }
  const T& operator[](std::size_t i) const noexcept { return items_[i]; }
  std::size_t size() const noexcept { return count_; }

private:
  std::size_t count_;
  std::size_t bytes_;
  T* items_;
};

// Reserves zeroed memory that is not charged until touched; nullptr when refused.
void* reserve_address_space(std::size_t bytes) noexcept;

template<class T>
reserved_array<T>::reserved_array(std::size_t count)
    : count_(count), bytes_(count * sizeof(T)),
      items_(static_cast<T*>(reserve_address_space(bytes_))) {
  if (items_ == nullptr) __builtin_trap();
}

}  // namespace kvd
