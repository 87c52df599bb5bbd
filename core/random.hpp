#pragma once
// Randomness, behind a seam: production draws from the kernel, the simulator from its seed.

#include <array>
#include <cstdint>
#include <span>

namespace kvd {

class random_source {
public:
  virtual ~random_source() = default;
  // Fills `out`; any thread.
  virtual void fill(std::span<std::byte> out) noexcept = 0;
  std::uint64_t next() noexcept;
};

// getrandom(2): unpredictable, for lease and boot ids.
class system_random final : public random_source {
public:
  void fill(std::span<std::byte> out) noexcept override;
};

// splitmix64 (Steele, Lea, Flood 2014): reproducible by seed. One thread.
class seeded_random final : public random_source {
public:
  explicit seeded_random(std::uint64_t seed) noexcept : state_(seed) {}
  void fill(std::span<std::byte> out) noexcept override;
  // Uniform in [0, bound); bound > 0. The bias for bounds far below 2^64 does not matter to tests.
  std::uint64_t below(std::uint64_t bound) noexcept { return step() % bound; }

private:
  std::uint64_t step() noexcept;
  std::uint64_t state_;
};

}  // namespace kvd
