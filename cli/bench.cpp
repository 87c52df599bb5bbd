#include "cli/bench.hpp"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/settings.hpp"

namespace kvd {

bench_options parse_bench_options(std::string_view command, std::string_view purpose,
                                  std::span<const option> table,
                                  std::span<const std::string> arguments) {
  findings found;
  const auto settings = settings_from_arguments(table, arguments, found);
  auto values = resolve(table, settings, found);
  if (values.get<bool>("help")) {
    fmt::print("usage: kvd {} [options]\n{}\n\n{}", command, purpose, describe_options(table));
    return {std::nullopt, bench_ok};
  }
  for (const auto& text : found.warnings)
    fmt::print(stderr, "kvd {}: warning: {}\n", command, text);
  for (const auto& text : found.errors)
    fmt::print(stderr, "kvd {}: {}\n", command, text);
  if (!found.errors.empty()) return {std::nullopt, bench_usage};
  return {std::move(values), bench_ok};
}

int bench_error(std::string_view command, const error& why) {
  fmt::print(stderr, "kvd {}: {} ({})\n", command, why.detail, name(why.code));
  return bench_failed;
}

double samples::percentile(double percent) const {
  if (values_.empty()) return 0;
  auto sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const auto rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  const auto at = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(at, sorted.size() - 1)];
}

double seconds_between(time_point from, time_point to) noexcept {
  return std::chrono::duration<double>(to - from).count();
}

result<double> time_parallel(const clock& time, std::size_t count,
                             const std::function<result<void>(std::size_t)>& work) {
  std::vector<result<void>> answers(count);
  std::vector<time_point> ends(count);
  time_point begin{};
  // The last thread to arrive stamps the start, so that no thread runs before it.
  std::barrier gate(static_cast<std::ptrdiff_t>(count),
                    [&begin, &time]() noexcept { begin = time.now(); });
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      gate.arrive_and_wait();
      answers[i] = work(i);
      ends[i] = time.now();
    });
  }
  for (auto& thread : threads)
    thread.join();
  for (auto& answer : answers) {
    if (!answer) return tl::unexpected(std::move(answer.error()));
  }
  return seconds_between(begin, *std::max_element(ends.begin(), ends.end()));
}

std::uint64_t spread(std::uint64_t number) noexcept {
  auto z = number + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

namespace {

// Word i of a block is start + i * step: additions alone, so that filling runs at memory's speed.
constexpr std::uint64_t word_step = 0x9E3779B97F4A7C15ULL;
constexpr std::size_t words_a_pass =
    512;  // one page a pass; the pattern of a pass is made in cache

template<class Use>
void each_page_of_pattern(std::size_t bytes, std::uint64_t seed, Use&& use) {
  std::uint64_t words[words_a_pass];
  auto next = spread(seed);
  for (std::size_t at = 0; at < bytes; at += sizeof words) {
    for (std::size_t i = 0; i < words_a_pass; ++i)
      words[i] = next + i * word_step;
    next += words_a_pass * word_step;
    if (!use(at, std::min(sizeof words, bytes - at), words)) return;
  }
}

}  // namespace

void fill_known(std::span<std::byte> out, std::uint64_t seed) noexcept {
  each_page_of_pattern(out.size(), seed,
                       [&out](std::size_t at, std::size_t size, const void* from) {
                         std::memcpy(out.data() + at, from, size);
                         return true;
                       });
}

std::optional<std::size_t> first_wrong_byte(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::optional<std::size_t> wrong;
  each_page_of_pattern(
      bytes.size(), seed, [&](std::size_t at, std::size_t size, const void* expected) {
        const auto* have = bytes.data() + at;
        if (std::memcmp(have, expected, size) == 0) return true;
        const auto* want = static_cast<const std::byte*>(expected);
        wrong = at + static_cast<std::size_t>(std::mismatch(have, have + size, want).first - have);
        return false;
      });
  return wrong;
}

std::string known_hash(std::uint64_t number) {
  std::string hash(32, '\0');
  for (std::size_t word = 0; word < 4; ++word) {
    const auto value = spread(spread(number) + word);
    std::memcpy(hash.data() + word * sizeof value, &value, sizeof value);
  }
  return hash;
}

struct progress::state {
  state(std::string text, std::uint64_t whole, const clock& now, bool silent)
      : label(std::move(text)), total(whole), time(now), quiet(silent), begin(now.now()),
        shown(begin) {}
  const std::string label;
  const std::uint64_t total;
  const clock& time;
  const bool quiet;
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const time_point begin;
  std::mutex mutex;  // guards what follows: threads of several engines report
  std::uint64_t done = 0;
  time_point shown;
};

namespace {

constexpr auto bar_every = std::chrono::milliseconds(100);
constexpr auto line_every = std::chrono::seconds(10);

std::string time_left(double elapsed, std::uint64_t done, std::uint64_t total) {
  if (done == 0) return "--:--";
  const auto left = elapsed * static_cast<double>(total - done) / static_cast<double>(done);
  const auto seconds = static_cast<std::uint64_t>(left + 0.5);
  return fmt::format("{:02}:{:02}", seconds / 60, seconds % 60);
}

}  // namespace

progress::progress(std::string label, std::uint64_t total, const clock& time, bool quiet)
    : state_(std::make_unique<state>(std::move(label), std::max<std::uint64_t>(total, 1), time,
                                     quiet)) {}

progress::~progress() {
  // The bar leaves its line to what is printed next.
  if (state_->terminal && !state_->quiet) fmt::print(stderr, "\r\x1b[K");
}

void progress::advance(std::uint64_t by) {
  if (state_->quiet) return;
  const std::scoped_lock lock(state_->mutex);
  auto& s = *state_;
  s.done = std::min(s.done + by, s.total);
  const auto now = s.time.now();
  if (now - s.shown < (s.terminal ? duration(bar_every) : duration(line_every))) return;
  s.shown = now;
  const auto percent = s.done * 100 / s.total;
  const auto left = time_left(seconds_between(s.begin, now), s.done, s.total);
  if (!s.terminal) {
    fmt::print(stderr, "{} {}/{} ({} %), {} left\n", s.label, s.done, s.total, percent, left);
    return;
  }
  constexpr std::uint64_t width = 30;
  const auto filled = static_cast<std::size_t>(s.done * width / s.total);
  fmt::print(stderr, "\r\x1b[K{} [{}{}] {:3} % {} left", s.label, std::string(filled, '#'),
             std::string(width - filled, '.'), percent, left);
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::uint64_t memory_gib() {
  const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  const auto page = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PAGESIZE), 0L));
  return (pages * page) >> 30;
}

std::string kernel_release() {
  utsname names{};
  return ::uname(&names) == 0 ? std::string(names.release) : std::string("unknown");
}

}  // namespace

std::string machine_shape() {
  return fmt::format("{}, {} cores, {} GiB, Linux {}", cpu_model(),
                     std::thread::hardware_concurrency(), memory_gib(), kernel_release());
}

boost::json::object machine_json() {
  return {{"cpu", cpu_model()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_gib", memory_gib()},
          {"kernel", kernel_release()}};
}

void pause_ms(int ms) noexcept {
  ::poll(nullptr, 0, ms);
}

}  // namespace kvd
