#pragma once
// How often an endless cache would have hit: what more memory could bring.
//
// For each window, a ring of slots; each slot counts the blocks that queries asked for and keeps a
// HyperLogLog of those they missed. A block misses an endless cache once, so the distinct misses of
// a window are its unavoidable ones, and 1 - distinct / asked is the ceiling of the hit rate.
//
//   window 15m:  | slot | slot | ... | slot |   slot length = clamp(window / 24, 1 min, 1 h)
//                  ^ ring, the slot of now is overwritten when its turn comes again
//
// Any thread; no lock but when a slot's turn comes, no allocation after create(). A thread that
// stands still for a whole window between two misses may count its next one in a slot too late.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace kvd {

// "15m", "1h", "1d", "90s": the largest unit that divides it. REQUIRES: span > 0.
std::string window_label(std::chrono::seconds span);

class hit_ceiling {
public:
  static constexpr std::size_t windows_max = 8;

  struct options {
    std::vector<std::chrono::seconds> windows;
    unsigned bucket_bits = 16;  // 2^bits registers a slot, error 1.04 / sqrt(2^bits)
  };

  struct reading {
    std::string window;
    std::uint64_t distinct_misses = 0;
    std::uint64_t requests = 0;
    double hit_rate = 0;  // 0..1; 0 without requests
  };

  // errc::invalid_argument names the option that is out of bounds: windows of 60 s at least, 8 at
  // most, no two alike; 4..18 bits; limits::hit_ceiling_bytes_max in all. `time` outlives it.
  [[nodiscard]] static result<std::unique_ptr<hit_ceiling>> create(const options& wanted,
                                                                   const clock& time);

  // The misses of one query: for each hash that is not in RAM, miss().
  class query {
  public:
    void miss(std::string_view hash) noexcept;

  private:
    friend class hit_ceiling;
    std::uint64_t seed_ = 0;  // of the namespace
    unsigned bits_ = 0;
    std::size_t windows_ = 0;
    std::array<std::atomic<std::uint8_t>*, windows_max> registers_{};
  };

  // A Ready query of `blocks` hashes in that namespace.
  query begin(std::string_view name_space, std::uint64_t blocks) noexcept;

  // Costs milliseconds: reads every register.
  std::vector<reading> read() const;

  std::size_t bytes() const noexcept;

private:
  struct slot {
    std::atomic<std::int64_t> turn{-1};  // time / slot length when it was last overwritten
    std::atomic<std::uint64_t> requests{0};
    std::unique_ptr<std::atomic<std::uint8_t>[]> registers;
  };
  struct window {
    std::string label;
    duration slot_length{};
    std::vector<slot> slots;
  };

  hit_ceiling(const options& wanted, const clock& time);
  slot& current(window& of, time_point now) noexcept;
  double distinct(const window& of, std::int64_t turn) const noexcept;

  const unsigned bits_;
  const clock& time_;
  std::vector<window> windows_;
  std::mutex turning_;  // one thread empties a slot; held for a memset once a slot length
};

}  // namespace kvd
