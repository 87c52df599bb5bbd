#include "memory/hit_ceiling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <xxhash.h>

#include "core/limits.hpp"

namespace kvd {

namespace {

using std::chrono::seconds;

constexpr seconds slot_shortest{60};
constexpr seconds slot_longest{3600};
constexpr int slots_wanted = 24;

seconds slot_length(seconds window) {
  return std::clamp(window / slots_wanted, slot_shortest, slot_longest);
}

std::size_t slot_count(seconds window) {
  const auto length = slot_length(window);
  return static_cast<std::size_t>((window + length - seconds(1)) / length);
}

// The two series of Ertl's estimator ("New cardinality estimation algorithms for HyperLogLog
// sketches", 2017), which needs no tables and has no bias at small or middle cardinalities.
double sigma(double x) {
  if (x == 1) return std::numeric_limits<double>::infinity();
  double sum = x, power = 1, before = -1;
  while (sum != before) {
    before = sum;
    x *= x;
    sum += x * power;
    power *= 2;
  }
  return sum;
}

double tau(double x) {
  if (x == 0 || x == 1) return 0;
  double sum = 1 - x, power = 1, before = -1;
  while (sum != before) {
    before = sum;
    x = std::sqrt(x);
    power /= 2;
    sum -= (1 - x) * (1 - x) * power;
  }
  return sum / 3;
}

// `with_rank[r]` registers hold rank r; ranks go from 0 (empty) to 64 - bits + 1.
double estimate(std::span<const std::uint32_t> with_rank, unsigned bits) {
  const double registers = static_cast<double>(std::uint64_t{1} << bits);
  const std::size_t ranks = 64 - bits;
  double sum = registers * tau(1 - with_rank[ranks + 1] / registers);
  for (std::size_t rank = ranks; rank >= 1; --rank)
    sum = 0.5 * (sum + with_rank[rank]);
  sum += registers * sigma(with_rank[0] / registers);
  return registers * registers / (2 * std::log(2.0)) / sum;
}

}  // namespace

std::string window_label(seconds span) {
  const auto count = span.count();
  if (count % 86'400 == 0) return fmt::format("{}d", count / 86'400);
  if (count % 3600 == 0) return fmt::format("{}h", count / 3600);
  if (count % 60 == 0) return fmt::format("{}m", count / 60);
  return fmt::format("{}s", count);
}

result<std::unique_ptr<hit_ceiling>> hit_ceiling::create(const options& wanted, const clock& time) {
  if (wanted.bucket_bits < 4 || wanted.bucket_bits > 18)
    return fail(errc::invalid_argument,
                fmt::format("{} bucket bits are outside 4..18", wanted.bucket_bits));
  if (wanted.windows.size() > windows_max)
    return fail(errc::invalid_argument, fmt::format("{} hit-rate windows are over the bound of {}",
                                                    wanted.windows.size(), windows_max));
  std::uint64_t bytes = 0;
  for (auto at = wanted.windows.begin(); at != wanted.windows.end(); ++at) {
    if (*at < slot_shortest)
      return fail(errc::invalid_argument,
                  fmt::format("a hit-rate window of {} s is under 60 s", at->count()));
    if (std::find(wanted.windows.begin(), at, *at) != at)
      return fail(errc::invalid_argument,
                  fmt::format("the hit-rate window {} occurs twice", window_label(*at)));
    bytes += slot_count(*at) << wanted.bucket_bits;
    if (bytes > limits::hit_ceiling_bytes_max)
      return fail(errc::invalid_argument,
                  fmt::format("hit-rate windows up to {} with {} bucket bits need {} bytes, over "
                              "the bound of {}",
                              window_label(*at), wanted.bucket_bits, bytes,
                              limits::hit_ceiling_bytes_max));
  }
  return std::unique_ptr<hit_ceiling>(new hit_ceiling(wanted, time));
}

hit_ceiling::hit_ceiling(const options& wanted, const clock& time)
    : bits_(wanted.bucket_bits), time_(time) {
  windows_.reserve(wanted.windows.size());
  for (const auto span : wanted.windows) {
    window added;
    added.label = window_label(span);
    added.slot_length = slot_length(span);
    added.slots = std::vector<slot>(slot_count(span));
    for (auto& each : added.slots)
      each.registers = std::make_unique<std::atomic<std::uint8_t>[]>(std::size_t{1} << bits_);
    windows_.push_back(std::move(added));
  }
}

std::size_t hit_ceiling::bytes() const noexcept {
  std::size_t slots = 0;
  for (const auto& each : windows_)
    slots += each.slots.size();
  return slots << bits_;
}

hit_ceiling::slot& hit_ceiling::current(window& of, time_point now) noexcept {
  const std::int64_t turn = now.time_since_epoch() / of.slot_length;
  auto& here = of.slots[static_cast<std::size_t>(turn) % of.slots.size()];
  if (here.turn.load(std::memory_order_acquire) < turn) {
    const std::lock_guard lock(turning_);
    if (here.turn.load(std::memory_order_relaxed) < turn) {
      here.requests.store(0, std::memory_order_relaxed);
      for (std::size_t i = 0; i < std::size_t{1} << bits_; ++i)
        here.registers[i].store(0, std::memory_order_relaxed);
      here.turn.store(turn, std::memory_order_release);
    }
  }
  return here;
}

hit_ceiling::query hit_ceiling::begin(std::string_view name_space, std::uint64_t blocks) noexcept {
  query out;
  out.seed_ = XXH3_64bits(name_space.data(), name_space.size());
  out.bits_ = bits_;
  out.windows_ = windows_.size();
  const auto now = time_.now();
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    auto& here = current(windows_[i], now);
    here.requests.fetch_add(blocks, std::memory_order_relaxed);
    out.registers_[i] = here.registers.get();
  }
  return out;
}

void hit_ceiling::query::miss(std::string_view hash) noexcept {
  const auto element = XXH3_64bits_withSeed(hash.data(), hash.size(), seed_);
  const auto index = static_cast<std::size_t>(element >> (64 - bits_));
  // The bit behind the rest bounds the rank at 64 - bits + 1.
  const auto rest = (element << bits_) | (std::uint64_t{1} << (bits_ - 1));
  const auto rank = static_cast<std::uint8_t>(std::countl_zero(rest) + 1);
  for (std::size_t i = 0; i < windows_; ++i) {
    auto& here = registers_[i][index];
    auto seen = here.load(std::memory_order_relaxed);
    while (seen < rank && !here.compare_exchange_weak(seen, rank, std::memory_order_relaxed)) {
    }
  }
}

double hit_ceiling::distinct(const window& of, std::int64_t turn) const noexcept {
  std::array<std::uint32_t, 65> with_rank{};
  const auto oldest = turn - static_cast<std::int64_t>(of.slots.size());
  for (std::size_t i = 0; i < std::size_t{1} << bits_; ++i) {
    std::uint8_t highest = 0;
    for (const auto& each : of.slots)
      if (each.turn.load(std::memory_order_acquire) > oldest)
        highest = std::max(highest, each.registers[i].load(std::memory_order_relaxed));
    ++with_rank[highest];
  }
  return estimate(with_rank, bits_);
}

std::vector<hit_ceiling::reading> hit_ceiling::read() const {
  std::vector<reading> out;
  const auto now = time_.now();
  for (const auto& each : windows_) {
    const std::int64_t turn = now.time_since_epoch() / each.slot_length;
    reading one;
    one.window = each.label;
    for (const auto& here : each.slots)
      if (here.turn.load(std::memory_order_acquire) >
          turn - static_cast<std::int64_t>(each.slots.size()))
        one.requests += here.requests.load(std::memory_order_relaxed);
    const auto missed = distinct(each, turn);
    one.distinct_misses = static_cast<std::uint64_t>(std::llround(missed));
    if (one.requests > 0)
      one.hit_rate = std::clamp(1 - missed / static_cast<double>(one.requests), 0.0, 1.0);
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace kvd
