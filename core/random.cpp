#include "core/random.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/random.h>

namespace kvd {

std::uint64_t random_source::next() noexcept {
  std::array<std::byte, 8> bytes{};
  fill(bytes);
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void system_random::fill(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const auto got = ::getrandom(out.data(), out.size(), 0);
    if (got > 0) {
      out = out.subspan(static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      std::abort();  // a kernel without getrandom cannot make unguessable leases
    }
  }
}

std::uint64_t seeded_random::step() noexcept {
  state_ += 0x9E3779B97F4A7C15ULL;
  auto z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

void seeded_random::fill(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const auto value = step();
    const auto count = std::min(out.size(), sizeof value);
    std::memcpy(out.data(), &value, count);
    out = out.subspan(count);
  }
}

}  // namespace kvd
