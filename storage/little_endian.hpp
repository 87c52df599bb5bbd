#pragma once
// Numbers as little-endian bytes, at a place of a structure on the file. REQUIRES: they fit in.

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvd {

template<class T>
void put_number(std::span<std::byte> out, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out[at + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template<class T>
T get_number(std::span<const std::byte> in, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<std::uint64_t>(in[at + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace kvd
