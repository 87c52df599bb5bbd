#pragma once
// Counters, gauges and histograms that any thread updates without a lock or an allocation.
//
// These hold numbers only; names, labels and HELP text live with the exporter (actors/metrics.cpp),
// which reads them when somebody asks. Owner: whoever embeds them; they outlive all updaters.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvd {

// Only ever grows.
class counter {
public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<std::uint64_t> value_{0};
};

class gauge {
public:
  void set(std::int64_t v) noexcept { value_.store(v, std::memory_order_relaxed); }
  void add(std::int64_t n) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<std::int64_t> value_{0};
};

// Buckets by upper bound, in ascending order, plus an implicit +Inf. `bounds` must outlive it: pass
// one of the constexpr arrays below.
class histogram {
public:
  static constexpr std::size_t buckets_max = 48;
  explicit histogram(std::span<const double> bounds) noexcept : bounds_(bounds) {}
  void observe(double value) noexcept {
    std::size_t i = 0;
    while (i < bounds_.size() && value > bounds_[i])
      ++i;
    buckets_[i].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
  std::span<const double> bounds() const noexcept { return bounds_; }
  // Observations in bucket i alone (not cumulative); i == bounds().size() is +Inf.
  std::uint64_t bucket(std::size_t i) const noexcept {
    return buckets_[i].load(std::memory_order_relaxed);
  }
  double sum() const noexcept { return sum_.load(std::memory_order_relaxed); }

private:
  std::span<const double> bounds_;
  std::array<std::atomic<std::uint64_t>, buckets_max + 1> buckets_{};
  std::atomic<double> sum_{0};
};

}  // namespace kvd
