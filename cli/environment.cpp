// The environment layer of cli/settings.hpp.

#include <algorithm>
#include <cstddef>
#include <optional>

#include <fmt/format.h>

#include "cli/settings.hpp"
#include "core/log.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

constexpr std::string_view ours = "KVD_";
// Read by tests, by the build and by client commands, so they mean something, if not to this one.
constexpr std::string_view not_options[] = {
    "KVD_TEST_", "KVD_TRACE_DIR",       "KVD_SANITIZE",       "KVD_BUILD_",    "KVD_CCACHE",
    "KVD_MOLD",  "KVD_ENGINE_ENDPOINT", "KVD_HTTP_ENDPOINT",  "KVD_ROLES",     "KVD_BINARY",
    "KVD_DEMO_", "KVD_FUZZ_",           "KVD_CLIENT_VERSION", "KVD_VENV_ROOT", "KVD_SIM_",
    "KVD_WIRE_", "KVD_ROUNDS",          "KVD_CLIENTS",        "KVD_VALUES",    "KVD_REDIS_"};

bool all_digits(std::string_view text) noexcept {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Kubernetes sets, for a service called kvd or kvd-x, KVD_SERVICE_HOST, KVD_X_SERVICE_PORT[_NAME],
// KVD_PORT and KVD_PORT_50055_TCP[_PROTO|_PORT|_ADDR] in every pod of the namespace.
bool is_service_link(std::string_view name) noexcept {
  if (name.find("_SERVICE_HOST") != std::string_view::npos) return true;
  if (name.find("_SERVICE_PORT") != std::string_view::npos) return true;
  if (name.ends_with("_PORT")) return true;
  const auto port = name.find("_PORT_");
  if (port == std::string_view::npos) return false;
  const auto rest = name.substr(port + 6);
  return all_digits(rest.substr(0, rest.find('_')));
}

bool belongs_elsewhere(std::string_view name) noexcept {
  return std::any_of(std::begin(not_options), std::end(not_options),
                     [name](std::string_view prefix) { return name.starts_with(prefix); }) ||
         is_service_link(name);
}

// RUST_LOG is a list of `level` and `module=level`; the first plain level is the process's.
std::optional<std::string> level_of_rust_log(std::string_view text) {
  std::size_t from = 0;
  while (from <= text.size()) {
    const auto comma = std::min(text.find(',', from), text.size());
    std::string word(trimmed(text.substr(from, comma - from)));
    std::transform(word.begin(), word.end(), word.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    log::level level{};
    if (log::parse(word, level)) return word;
    from = comma + 1;
  }
  return std::nullopt;
}

void add_foreign(const option& spec, const environment_variable& variable,
                 std::vector<setting>& out, findings& found) {
  auto source = fmt::format("environment {}", variable.name);
  if (variable.name != "RUST_LOG") {
    out.push_back({option_layer::foreign_environment,
                   std::string(spec.name),
                   std::move(source),
                   {variable.value}});
    return;
  }
  if (auto level = level_of_rust_log(variable.value)) {
    out.push_back({option_layer::foreign_environment,
                   std::string(spec.name),
                   std::move(source),
                   {std::move(*level)}});
  } else {
    // RUST_LOG steers other programs too: what it says to them is no reason not to start.
    found.warnings.push_back(
        fmt::format("{}: {} names no plain level (trace, debug, info, warn, error); ignored",
                    source, in_quotes(variable.value)));
  }
}

}  // namespace

std::vector<setting> settings_from_environment(std::span<const option> table,
                                               std::span<const environment_variable> variables,
                                               findings& found) {
  std::vector<std::string> names;
  names.reserve(table.size());
  for (const auto& spec : table)
    names.push_back(environment_name(spec.name));
  const std::vector<std::string_view> candidates(names.begin(), names.end());

  std::vector<setting> out;
  for (const auto& variable : variables) {
    if (variable.value.empty()) continue;
    for (const auto& spec : table) {
      if (!spec.also_env.empty() && spec.also_env == variable.name) {
        add_foreign(spec, variable, out, found);
      }
    }
    if (!variable.name.starts_with(ours)) continue;
    const auto known = std::find(names.begin(), names.end(), variable.name);
    if (known != names.end()) {
      const auto& spec = table[static_cast<std::size_t>(known - names.begin())];
      out.push_back({option_layer::environment,
                     std::string(spec.name),
                     fmt::format("environment {}", variable.name),
                     {variable.value}});
    } else if (!belongs_elsewhere(variable.name)) {
      // Not an error: whoever sets the environment of a whole host or pod may mean another program
      // or another version, and a restart must not fail over it.
      found.warnings.push_back(fmt::format("environment {}: no option has this name{}",
                                           variable.name,
                                           did_you_mean(variable.name, candidates, "", "")));
    }
  }
  return out;
}

}  // namespace kvd
