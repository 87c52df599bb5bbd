// LINK: kvd_cli
//
// Options from hostile input. The first byte that is 0xff ends the arguments, the second one the
// environment, and the rest is the configuration file. Arguments and variables end at a NUL.
// Whatever comes, planning must answer with values or errors, never throw, and never read a file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "cli/server.hpp"

namespace {

std::string_view take_until(std::string_view& from, char end) {
  const auto at = from.find(end);
  const auto head = from.substr(0, at);
  from.remove_prefix(at == std::string_view::npos ? from.size() : at + 1);
  return head;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(bytes), size);
  auto line = take_until(input, '\xff');
  auto variables = take_until(input, '\xff');
  const std::string file(input);

  std::vector<std::string> arguments{"--config", "fuzz.toml"};
  while (!line.empty())
    arguments.emplace_back(take_until(line, '\0'));
  std::vector<kvd::environment_variable> environment;
  while (!variables.empty()) {
    auto text = take_until(variables, '\0');
    const std::string name(take_until(text, '='));
    environment.push_back({name, std::string(text)});
  }
  const kvd::file_reader read = [&file](const std::string&) {
    return kvd::result<kvd::text_file>(kvd::text_file{file, false});
  };

  const auto plan = kvd::plan_server(arguments, environment, read);
  if (kvd::describe_effective(plan).empty()) std::abort();
  // An accepted plan is within the limits, whatever was asked for.
  const auto& o = plan.options;
  if (plan.found.errors.empty()) {
    if (o.pool_bytes < 4096 || o.pool_bytes > kvd::limits::pool_bytes_max) std::abort();
    if (o.pool_bytes % kvd::limits::pool_unit_bytes != 0) std::abort();
    if (o.hint_value_bytes > o.pool_bytes + kvd::limits::pool_unit_bytes) std::abort();
    if (o.hll_windows.empty() || o.hll_bucket_bits < 4 || o.hll_bucket_bits > 18) std::abort();
  }
  return 0;
}
