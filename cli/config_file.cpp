#include "cli/config_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <toml.hpp>

#include "cli/roles.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

// toml11 descends once for each bracket and each part of a dotted key; a flat file needs few.
constexpr std::ptrdiff_t brackets_max = 256;
constexpr std::ptrdiff_t dots_per_line_max = 256;

struct located {
  std::size_t line;
  std::string text;
};

class file_descriptor {
public:
  explicit file_descriptor(int fd) noexcept : fd_(fd) {}
  ~file_descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  file_descriptor(const file_descriptor&) = delete;
  file_descriptor& operator=(const file_descriptor&) = delete;
  int get() const noexcept { return fd_; }

private:
  int fd_;
};

tl::unexpected<error> refuse_io(const std::string& path) {
  return fail(errc::io, fmt::format("{}: {}", in_quotes(path), std::strerror(errno)));
}

// What one TOML value says, as text; nothing for kinds that no option takes.
bool append_scalar(const toml::value& value, std::vector<std::string>& out) {
  switch (value.type()) {
  case toml::value_t::boolean: out.emplace_back(value.as_boolean() ? "true" : "false"); return true;
  case toml::value_t::integer: out.push_back(fmt::format("{}", value.as_integer())); return true;
  case toml::value_t::floating: out.push_back(fmt::format("{}", value.as_floating())); return true;
  case toml::value_t::string: out.push_back(value.as_string().str); return true;
  default: return false;
  }
}

bool append_value(const toml::value& value, bool list, std::vector<std::string>& out) {
  if (!value.is_array()) return append_scalar(value, out);
  if (!list) return false;
  const auto& items = value.as_array();
  return std::all_of(items.begin(), items.end(),
                     [&out](const toml::value& item) { return append_scalar(item, out); });
}

std::vector<std::string_view> file_keys(std::span<const option> table) {
  std::vector<std::string_view> out;
  for (const auto& spec : table) {
    if (spec.in_file) out.push_back(spec.name);
  }
  return out;
}

void read_section(std::span<const option> table, const std::string& path,
                  const toml::value& section, std::vector<setting>& out,
                  std::vector<located>& errors) {
  for (const auto& [key, value] : section.as_table()) {
    const auto line = value.location().line();
    const auto* spec = find_option(table, key);
    if (spec == nullptr || !spec->in_file) {
      const auto why = spec == nullptr ? "no option has this name" : "cannot stand in a file";
      errors.push_back(
          {line, fmt::format("{}:{}: key {}: {}{}", path, line, in_quotes(key), why,
                             spec == nullptr ? did_you_mean(key, file_keys(table), "", "")
                                             : std::string())});
      continue;
    }
    setting mention{option_layer::file, key, fmt::format("{}:{} {}", path, line, key), {}};
    if (!append_value(value, spec->kind == option_kind::list, mention.values)) {
      errors.push_back({line, fmt::format("{}: is a {}, which this option does not take",
                                          mention.source, toml::stringize(value.type()))});
      continue;
    }
    out.push_back(std::move(mention));
  }
}

// One file may hold the options of several roles; each reads its own section.
bool is_landed(std::string_view section) {
  return std::find(std::begin(landed_roles), std::end(landed_roles), section) !=
         std::end(landed_roles);
}

void refuse_section(const std::string& path, const std::string& name, const toml::value& value,
                    std::vector<located>& errors) {
  const auto line = value.location().line();
  std::string why;
  if (!value.is_table()) {
    why = "stands outside a section; put it under [server]";
  } else if (std::find(std::begin(later_roles), std::end(later_roles), name) !=
             std::end(later_roles)) {
    why = fmt::format("this role has not landed in this version; known sections: [{}]",
                      fmt::join(landed_roles, "], ["));
  } else {
    why = fmt::format("no role has this name{}; known sections: [{}]",
                      did_you_mean(name, landed_roles, "[", "]"), fmt::join(landed_roles, "], ["));
  }
  errors.push_back({line, fmt::format("{}:{}: {} {}: {}", path, line,
                                      value.is_table() ? "section" : "key", in_quotes(name), why)});
}

// toml11's messages are drawings of several lines; the first one says it all.
std::string first_line(std::string_view message) {
  auto line = message.substr(0, message.find('\n'));
  constexpr std::string_view mark = "[error] ";
  if (line.starts_with(mark)) line.remove_prefix(mark.size());
  // It begins with the parser's own function name.
  const auto colon = line.find(": ");
  if (line.starts_with("toml::") && colon != std::string_view::npos) line.remove_prefix(colon + 2);
  return std::string(line);
}

bool is_too_nested(std::string_view text) noexcept {
  const auto brackets =
      std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; });
  if (brackets > brackets_max) return true;
  std::ptrdiff_t dots = 0;
  for (const char c : text) {
    if (c == '\n') dots = 0;
    if (c == '.' && ++dots > dots_per_line_max) return true;
  }
  return false;
}

}  // namespace

result<text_file> read_text_file(const std::string& path) {
  // Non-blocking, so that a pipe nobody writes to cannot hold up the start.
  const file_descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return refuse_io(path);
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return refuse_io(path);
  if (!S_ISREG(about.st_mode)) {
    return fail(errc::io, fmt::format("{}: is not a regular file", in_quotes(path)));
  }
  std::string text(limits::config_file_bytes_max + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const auto n = ::read(file.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refuse_io(path);
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  if (size > limits::config_file_bytes_max) {
    return fail(errc::limit_exceeded,
                fmt::format("{}: is larger than the limit of {}", in_quotes(path),
                            format_bytes(limits::config_file_bytes_max)));
  }
  text.resize(size);
  return text_file{std::move(text), (about.st_mode & S_IROTH) != 0};
}

std::vector<setting> settings_from_file(std::span<const option> table, std::string_view role,
                                        const std::string& path, const std::string& text,
                                        findings& found) {
  std::vector<setting> out;
  if (text.size() > limits::config_file_bytes_max || is_too_nested(text)) {
    found.errors.push_back(fmt::format("{}: more than {} or {} brackets: no configuration of kvd",
                                       path, format_bytes(limits::config_file_bytes_max),
                                       brackets_max));
    return out;
  }
  std::vector<located> errors;
  try {
    std::istringstream stream(text);
    const auto root = toml::parse(stream, path);
    for (const auto& [name, value] : root.as_table()) {
      if (name == role && value.is_table()) {
        read_section(table, path, value, out, errors);
      } else if (!value.is_table() || !is_landed(name)) {
        refuse_section(path, name, value, errors);
      }
    }
  } catch (const toml::exception& e) {
    const auto line = e.location().line();
    errors.push_back(
        {line, fmt::format("{}:{}: not valid TOML: {}", path, line, first_line(e.what()))});
  } catch (const std::exception& e) {
    errors.push_back({0, fmt::format("{}: not valid TOML: {}", path, first_line(e.what()))});
  }
  std::stable_sort(errors.begin(), errors.end(), [](const located& a, const located& b) {
    return std::pair(a.line, std::string_view(a.text)) <
           std::pair(b.line, std::string_view(b.text));
  });
  for (auto& e : errors)
    found.errors.push_back(std::move(e.text));
  return out;
}

}  // namespace kvd
