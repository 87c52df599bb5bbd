#include "cli/settings.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>

#include <unistd.h>

#include <boost/make_shared.hpp>
#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "core/units.hpp"

namespace kvd {

namespace {

namespace po = boost::program_options;

// Lets Boost split tokens and look up names, and leaves values to core/options: Boost would stop at
// the first missing or malformed value. A value is never required here, so a missing one is an
// empty list that the resolver reports with all the others.
class raw_tokens final : public po::value_semantic {
public:
  explicit raw_tokens(unsigned most) : most_(most) {}
  std::string name() const override { return {}; }
  unsigned min_tokens() const override { return 0; }
  unsigned max_tokens() const override { return most_; }
  bool is_composing() const override { return true; }
  bool is_required() const override { return false; }
  void parse(boost::any&, const std::vector<std::string>&, bool) const override {}
  bool apply_default(boost::any&) const override { return false; }
  void notify(const boost::any&) const override {}

private:
  unsigned most_;
};

constexpr std::string_view negation = "no-";

po::options_description describe(std::span<const option> table) {
  po::options_description out;
  const auto add = [&out](const std::string& name, unsigned most) {
    out.add(boost::make_shared<po::option_description>(name.c_str(), new raw_tokens(most)));
  };
  for (const auto& spec : table) {
    add(std::string(spec.name), spec.kind == option_kind::list ? 1U << 16 : 1U);
    if (spec.kind == option_kind::flag) add(fmt::format("{}{}", negation, spec.name), 1U);
  }
  return out;
}

std::vector<std::string_view> names_of(std::span<const option> table) {
  std::vector<std::string_view> out;
  for (const auto& spec : table)
    out.push_back(spec.name);
  return out;
}

void add_flag(std::span<const option> table, po::option&& token, std::vector<setting>& out,
              findings& found) {
  const auto source = fmt::format("--{}", token.string_key);
  if (find_option(table, token.string_key) != nullptr) {
    out.push_back({option_layer::flag, token.string_key, source, std::move(token.value)});
    return;
  }
  // The only other names that describe() adds are negations.
  if (!token.value.empty()) {
    found.errors.push_back(fmt::format("{}: takes no value, {} was given; write --{}=...", source,
                                       in_quotes(token.value.front()),
                                       token.string_key.substr(negation.size())));
    return;
  }
  out.push_back({option_layer::flag, token.string_key.substr(negation.size()), source, {"false"}});
}

void report_unknown(std::span<const option> table, const std::string& token, findings& found) {
  const auto name = std::string_view(token).substr(0, token.find('='));
  const auto word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  const bool no = word.starts_with(negation);
  const auto names = names_of(table);
  found.errors.push_back(fmt::format(
      "{}: unknown flag{}", in_quotes(name),
      did_you_mean(no ? word.substr(negation.size()) : word, names, no ? "--no-" : "--", "")));
}

}  // namespace

std::vector<environment_variable> process_environment() {
  std::vector<environment_variable> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    out.push_back({std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))});
  }
  return out;
}

std::vector<setting> settings_from_arguments(std::span<const option> table,
                                             std::span<const std::string> arguments,
                                             findings& found) {
  std::vector<setting> out;
  try {
    namespace style = po::command_line_style;
    const auto description = describe(table);
    auto parsed =
        po::command_line_parser({arguments.begin(), arguments.end()})
            .options(description)
            .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
            .allow_unregistered()
            .run();
    bool after_unknown = false;
    for (auto& token : parsed.options) {
      const bool positional = token.string_key.empty();
      if (token.unregistered && !positional) {
        const auto& tokens = token.original_tokens;
        report_unknown(table, tokens.empty() ? token.string_key : tokens.front(), found);
      } else if (!positional) {
        add_flag(table, std::move(token), out, found);
      } else if (!after_unknown) {
        // What follows an unknown flag is most likely its value: one mistake, one message.
        for (const auto& value : token.value) {
          found.errors.push_back(fmt::format("{}: unexpected argument", in_quotes(value)));
        }
      }
      after_unknown = token.unregistered && !positional;
    }
  } catch (const std::exception& e) {
    found.errors.push_back(fmt::format("command line: {}", e.what()));
  }
  return out;
}

}  // namespace kvd
