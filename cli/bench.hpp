#pragma once
// What the kvd bench commands share: options, statistics, known bytes, progress and tables.
//
// Measurements are ratios: each command takes its ceiling in the same run, in turns with what it
// measures, and prints medians of several rounds beside it. GB is 10^9 bytes, as in every published
// figure; sizes that people write count in steps of 1024.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/options.hpp"

namespace kvd {

// Exit statuses of every bench command.
inline constexpr int bench_ok = 0;
inline constexpr int bench_failed = 1;  // wrong bytes, or the server refused
inline constexpr int bench_usage = 2;

// The options of a command line, or the status to exit with after help or errors were printed.
// REQUIRES: the table has the flag `help`.
struct bench_options {
  std::optional<resolution> values;
  int status = bench_ok;
};
bench_options parse_bench_options(std::string_view command, std::string_view purpose,
                                  std::span<const option> table,
                                  std::span<const std::string> arguments);

// Prints `kvd bench X: detail` to stderr; returns bench_failed.
int bench_error(std::string_view command, const error& why);

// A series of measurements of one thing.
class samples {
public:
  void add(double value) { values_.push_back(value); }
  void add(const samples& others) {
    values_.insert(values_.end(), others.values_.begin(), others.values_.end());
  }
  bool empty() const noexcept { return values_.empty(); }
  std::size_t size() const noexcept { return values_.size(); }
  // Nearest rank: the smallest value that `percent` of all do not exceed; 0 without samples.
  double percentile(double percent) const;
  double median() const { return percentile(50); }

private:
  std::vector<double> values_;
};

double seconds_between(time_point from, time_point to) noexcept;
inline double gigabytes(double bytes) noexcept {
  return bytes / 1e9;
}

// Runs `work(i)` for i < count on a thread each, all let go at once. The seconds from then until
// the last one ended, or the first error by number. REQUIRES: count > 0; `work` does not throw.
result<double> time_parallel(const clock& time, std::size_t count,
                             const std::function<result<void>(std::size_t)>& work);

// Bytes that only this seed gives, at the speed of memory; any shift or mix of two blocks differs.
void fill_known(std::span<std::byte> out, std::uint64_t seed) noexcept;
// Where `bytes` differ first from what fill_known gives, or nothing.
std::optional<std::size_t> first_wrong_byte(std::span<const std::byte> bytes, std::uint64_t seed);
// A 32-byte block hash that only this number gives.
std::string known_hash(std::uint64_t number);
// Spreads close numbers over all 64 bits (splitmix64's last step).
std::uint64_t spread(std::uint64_t number) noexcept;

// How far a long run is: a bar with the time left on a terminal, one line per 10 s otherwise; on
// stderr, so that results can be piped. Any thread may advance.
class progress {
public:
  // `quiet`: print nothing.
  progress(std::string label, std::uint64_t total, const clock& time, bool quiet);
  ~progress();
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  void advance(std::uint64_t by);

private:
  struct state;
  std::unique_ptr<state> state_;
};

// Left-aligned first column, right-aligned others, two spaces between them.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// `AMD EPYC, 2 cores, 23 GiB, Linux 6.1`: what a figure was measured on.
std::string machine_shape();
boost::json::object machine_json();

// Tells the kernel nothing; blocks this thread for about `ms`. For polling a child process.
void pause_ms(int ms) noexcept;

}  // namespace kvd
