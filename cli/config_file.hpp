#pragma once
// The file layer of options: TOML, one section a role, keys named like the flags.
//
//   [server]
//   pool-size = "64gb"
//   devices = [0, 1]
//
// Errors name file and line. Parsing itself is toml11's; input that could make it recurse deeply
// is refused before. Pure functions but for read_text_file; any thread.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/options.hpp"

namespace kvd {

struct text_file {
  std::string text;
  bool world_readable;
};

// How the resolver reaches files, so that tests and the fuzzer hand in text.
using file_reader = std::function<result<text_file>(const std::string& path)>;

// Reads a regular file of at most limits::config_file_bytes_max. Errors: io, limit_exceeded.
[[nodiscard]] result<text_file> read_text_file(const std::string& path);

// Settings of section `role`; `path` is for messages only.
std::vector<setting> settings_from_file(std::span<const option> table, std::string_view role,
                                        const std::string& path, const std::string& text,
                                        findings& found);

}  // namespace kvd
