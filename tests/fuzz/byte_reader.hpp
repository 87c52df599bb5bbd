#pragma once
// A fuzzer's input as a source of small choices; it never runs out, it only turns to zeros.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kvd::fuzz {

class byte_reader {
public:
  // The bytes outlive it.
  byte_reader(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  std::uint8_t byte() { return empty() ? std::uint8_t{0} : *at_++; }
  // In [0, bound); bound is 1 to 256.
  std::uint32_t below(std::uint32_t bound) { return byte() % bound; }
  std::string bytes(std::size_t count) {
    count = std::min(count, static_cast<std::size_t>(end_ - at_));
    std::string taken(reinterpret_cast<const char*>(at_), count);
    at_ += count;
    return taken;
  }

private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

}  // namespace kvd::fuzz
