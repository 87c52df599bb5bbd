#pragma once
// Zeroed memory whose address suits every block_file: aligned to 4096 bytes. Owner: whoever holds
// it.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace kvd {

class aligned_bytes {
public:
  static constexpr std::align_val_t alignment{4096};

  aligned_bytes() = default;
  explicit aligned_bytes(std::size_t bytes)
      : at_(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), alignment))),
        bytes_(bytes) {
    std::memset(at_.get(), 0, bytes);
  }

  std::byte* data() const noexcept { return at_.get(); }
  std::size_t size() const noexcept { return bytes_; }
  std::span<std::byte> span() const noexcept { return {at_.get(), bytes_}; }

private:
  struct release {
    void operator()(std::byte* at) const noexcept { ::operator delete(at, alignment); }
  };
  std::unique_ptr<std::byte, release> at_;
  std::size_t bytes_ = 0;
};

}  // namespace kvd
