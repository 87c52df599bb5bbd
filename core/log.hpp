#pragma once
// The log: one line a record, to stderr or wherever the process points it.
//
//   2026-12-01T03:02:24.123Z INFO  engine  registered worker instance=a device=0
//
// Any thread. A record below the level costs one relaxed load. `component` is a folder or actor
// name. Values go in as key=value so that a person and a program can both read them.

#include <atomic>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace kvd::log {

enum class level : std::uint8_t { trace, debug, info, warn, error };

// Accepts trace, debug, info, warn, error. Returns false for anything else.
bool parse(std::string_view text, level& out) noexcept;
void set_level(level lowest) noexcept;
level current_level() noexcept;

namespace detail {
void write(level at, std::string_view component, std::string_view text) noexcept;
}

template<class... Args>
void record(level at, std::string_view component, fmt::format_string<Args...> format,
            Args&&... args) noexcept {
  if (at < current_level()) return;
  try {
    detail::write(at, component, fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {
    detail::write(level::error, "log", "a log record could not be formatted");
  }
}

template<class... Args>
void debug(std::string_view component, fmt::format_string<Args...> format,
           Args&&... args) noexcept {
  record(level::debug, component, format, std::forward<Args>(args)...);
}
template<class... Args>
void info(std::string_view component, fmt::format_string<Args...> format, Args&&... args) noexcept {
  record(level::info, component, format, std::forward<Args>(args)...);
}
template<class... Args>
void warn(std::string_view component, fmt::format_string<Args...> format, Args&&... args) noexcept {
  record(level::warn, component, format, std::forward<Args>(args)...);
}
template<class... Args>
void error(std::string_view component, fmt::format_string<Args...> format,
           Args&&... args) noexcept {
  record(level::error, component, format, std::forward<Args>(args)...);
}

}  // namespace kvd::log
