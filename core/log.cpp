#include "core/log.hpp"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include <unistd.h>

namespace kvd::log {

namespace {

std::atomic<level> lowest_level{level::info};

constexpr std::pair<std::string_view, std::string_view> names[] = {
    {"trace", "TRACE"}, {"debug", "DEBUG"}, {"info", "INFO "},
    {"warn", "WARN "},  {"error", "ERROR"},
};

}  // namespace

bool parse(std::string_view text, level& out) noexcept {
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if (names[i].first == text) {
      out = static_cast<level>(i);
      return true;
    }
  }
  return false;
}

void set_level(level lowest) noexcept {
  lowest_level.store(lowest, std::memory_order_relaxed);
}
level current_level() noexcept {
  return lowest_level.load(std::memory_order_relaxed);
}

void detail::write(level at, std::string_view component, std::string_view text) noexcept {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char stamp[32];
  const auto stamp_size = std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  try {
    // One write(2) a record, so that lines of different threads never mix.
    const auto line = fmt::format("{}.{:03}Z {} {:<9} {}\n", std::string_view(stamp, stamp_size),
                                  millis.count() % 1000, names[static_cast<std::size_t>(at)].second,
                                  component, text);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {
    std::fputs("log: out of memory\n", stderr);
  }
}

}  // namespace kvd::log
