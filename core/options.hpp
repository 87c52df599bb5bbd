#pragma once
// Options by table: one row an option, and one resolver that lays flag over environment over file
// over default.
//
//   table --> [ file | environment | flags ] --> resolution { one value an option, with its source;
//             every error of every layer; warnings }
//
// Readers of each layer (cli/) hand in settings as text. The resolver validates every setting, also
// one that a higher layer hides, so that a person sees all mistakes at once. Each message names
// the source, the value and the limit. No I/O; pure functions over their arguments; any thread.
//
// The strings of a table are literals: views into them stay valid.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.hpp"

namespace kvd {

enum class option_kind : std::uint8_t {
  text,    // std::string
  flag,    // bool: --name, --name=false, --no-name
  size,    // std::uint64_t bytes, limits in bytes
  period,  // std::chrono::milliseconds, whole seconds, limits in ms
  count,   // std::uint64_t within the limits
  ratio,   // double from 0 to 1
  list,    // std::vector<std::string> without duplicates; comma or space separated, repeatable
};

using option_value = std::variant<std::string, bool, std::uint64_t, std::chrono::milliseconds,
                                  double, std::vector<std::string>>;

// The canonical form of a text (of one item of a list), or what is wrong with it.
using option_parser = result<std::string> (*)(std::string_view value);

struct option {
  std::string_view name;  // also the config key
  option_kind kind = option_kind::text;
  std::string_view fallback{};  // default, written as a person would; empty: nothing given
  std::string_view value{};     // what stands for the value in help: SIZE, HOST:PORT
  std::string_view group{};     // heading in help
  std::string_view help{};      // one or two sentences
  std::uint64_t low = 0;        // size, duration, count: inclusive limits
  std::uint64_t high = ~std::uint64_t{0};
  std::span<const std::string_view> choices{};  // text: the accepted words; empty: any
  option_parser parse = nullptr;                // text and list
  std::string_view also_env{};  // another project's environment name for the same thing
  std::string_view refused{};   // not empty: giving it is an error today, and this is why
  bool in_file = true;          // false: makes no sense inside a configuration file
};

// Ascending precedence.
enum class option_layer : std::uint8_t { fallback, file, foreign_environment, environment, flag };

// One mention of an option, as text.
struct setting {
  option_layer layer = option_layer::flag;
  std::string name;                 // the option's name
  std::string source;               // for messages and --check-config: `--pool-size`, `kvd.toml:7`
  std::vector<std::string> values;  // empty: mentioned without a value
};

struct effective_option {
  const option* spec;
  option_value value;
  std::string text;    // the value as a person would write it; empty: none
  std::string source;  // setting::source, or `default`
  option_layer layer;
  bool given() const noexcept { return layer != option_layer::fallback; }
};

// What readers and the resolver found wrong. Warnings do not stop the start.
struct findings {
  std::vector<std::string> errors;
  std::vector<std::string> warnings;
};

class resolution {
public:
  explicit resolution(std::vector<effective_option> values) : values_(std::move(values)) {}
  // In table order.
  std::span<const effective_option> all() const noexcept { return values_; }
  // REQUIRES: the table has `name`.
  const effective_option& at(std::string_view name) const noexcept;
  // REQUIRES: T is the type of the option's kind.
  template<class T>
  const T& get(std::string_view name) const noexcept {
    return *std::get_if<T>(&at(name).value);
  }
  bool given(std::string_view name) const noexcept { return at(name).given(); }

private:
  std::vector<effective_option> values_;
};

// Settings may come in any order; of one layer, a second mention of an option is an error unless it
// is a list. Where every setting of an option is wrong, its default stands in.
// REQUIRES: every setting names an option of the table.
resolution resolve(std::span<const option> table, std::span<const setting> settings,
                   findings& found);

// Parses one value of `spec`; the error says what is wrong, without naming the option.
[[nodiscard]] result<option_value> parse_option(const option& spec,
                                                std::span<const std::string> values);
// The value as a person would write it.
std::string format_option(const option& spec, const option_value& value);

const option* find_option(std::span<const option> table, std::string_view name) noexcept;

// `pool-size` -> `KVD_POOL_SIZE`.
std::string environment_name(std::string_view option_name);

// The candidate that `word` most probably meant, or an empty view when none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);
// "; did you mean X?" or an empty string.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates,
                         std::string_view before, std::string_view after);

// All options by group, wrapped to 96 columns, each with its limits and default.
std::string describe_options(std::span<const option> table);

}  // namespace kvd
