#include "core/options.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace kvd {
namespace {

using std::chrono::milliseconds;

result<std::string> no_x(std::string_view item) {
  if (item == "x") return fail(errc::invalid_argument, "x is not allowed");
  return item == "one" ? std::string("1") : std::string(item);
}

constexpr std::string_view colours[] = {"red", "green"};

const option table[] = {
    {.name = "size",
     .kind = option_kind::size,
     .fallback = "1gb",
     .value = "SIZE",
     .group = "First",
     .help = "How much.",
     .low = 1,
     .high = std::uint64_t{1} << 40},
    {.name = "shards",
     .kind = option_kind::count,
     .fallback = "2",
     .value = "COUNT",
     .group = "First",
     .help = "How many.",
     .low = 1,
     .high = 8},
    {.name = "wait-secs",
     .kind = option_kind::period,
     .fallback = "10s",
     .value = "SECONDS",
     .group = "Second",
     .help = "How long.",
     .low = 1000,
     .high = 60'000},
    {.name = "fast", .kind = option_kind::flag, .fallback = "true", .group = "Second"},
    {.name = "share", .kind = option_kind::ratio, .fallback = "0.5", .value = "RATIO"},
    {.name = "colour", .fallback = "red", .value = "COLOUR", .choices = colours},
    {.name = "cards", .kind = option_kind::list, .value = "NAME,...", .parse = no_x},
    {.name = "future", .value = "X", .refused = "has not landed"},
};

setting from(option_layer layer, std::string name, std::vector<std::string> values) {
  static constexpr const char* sources[] = {"default", "file:1", "env FOREIGN", "env KVD", "flag"};
  return {layer, std::move(name), sources[static_cast<std::size_t>(layer)], std::move(values)};
}

bool mentions(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&part](const std::string& text) {
    return text.find(part) != std::string::npos;
  });
}

TEST_CASE("an option that nobody mentions has its default, and says so") {
  findings found;
  const auto values = resolve(table, {}, found);
  CHECK(values.get<std::uint64_t>("size") == std::uint64_t{1} << 30);
  CHECK(values.get<milliseconds>("wait-secs") == milliseconds(10'000));
  CHECK(values.get<bool>("fast"));
  CHECK(values.get<double>("share") == 0.5);
  CHECK(values.get<std::string>("colour") == "red");
  CHECK(values.get<std::vector<std::string>>("cards").empty());
  CHECK(values.at("size").source == "default");
  CHECK_FALSE(values.given("size"));
  CHECK(found.errors.empty());
  CHECK(values.all().size() == std::size(table));
}

TEST_CASE("flag beats environment beats foreign environment beats file, in any order") {
  std::vector<setting> all = {from(option_layer::file, "shards", {"3"}),
                              from(option_layer::foreign_environment, "shards", {"4"}),
                              from(option_layer::environment, "shards", {"5"}),
                              from(option_layer::flag, "shards", {"6"})};
  std::sort(all.begin(), all.end(),
            [](const setting& a, const setting& b) { return a.values.front() > b.values.front(); });
  for (std::uint64_t expected = 6; expected >= 3; --expected) {
    findings found;
    const auto values = resolve(table, all, found);
    CHECK(values.get<std::uint64_t>("shards") == expected);
    CHECK(values.at("shards").text == std::to_string(expected));
    CHECK(found.errors.empty());
    all.erase(all.begin());
  }
}

TEST_CASE("every wrong value of every layer is reported at once, also one that is overridden") {
  const setting all[] = {from(option_layer::file, "size", {"-5"}),
                         from(option_layer::environment, "size", {"50%"}),
                         from(option_layer::flag, "size", {"2gb"}),
                         from(option_layer::flag, "shards", {"9"}),
                         from(option_layer::environment, "wait-secs", {"1500ms"}),
                         from(option_layer::file, "fast", {"maybe"}),
                         from(option_layer::flag, "share", {"1.5"}),
                         from(option_layer::flag, "colour", {"gren"}),
                         from(option_layer::flag, "cards", {"a,x"})};
  findings found;
  const auto values = resolve(table, all, found);
  CHECK(found.errors.size() == 8);
  CHECK(mentions(found.errors, "file:1: '-5' is negative; limits 1b to 1tb"));
  CHECK(mentions(found.errors, "env KVD: '50%' is a percentage"));
  CHECK(mentions(found.errors, "flag: '9' is outside the limits 1 to 8"));
  CHECK(mentions(found.errors, "env KVD: '1500ms' is not a whole number of seconds"));
  CHECK(mentions(found.errors, "file:1: 'maybe' is neither true nor false"));
  CHECK(mentions(found.errors, "flag: '1.5' is above 1"));
  CHECK(mentions(found.errors, "flag: 'gren' is none of red, green; did you mean green?"));
  CHECK(mentions(found.errors, "flag: x is not allowed"));
  CHECK(values.get<std::uint64_t>("size") == std::uint64_t{2} << 30);
  CHECK(values.get<std::uint64_t>("shards") == 2);
}

TEST_CASE("zero is refused where zero makes no sense, naming the limit") {
  const setting all[] = {from(option_layer::flag, "size", {"0"})};
  findings found;
  resolve(table, all, found);
  CHECK(mentions(found.errors, "flag: '0' is outside the limits 1b to 1tb"));
}

TEST_CASE("a single option given twice in one layer is an error, a list adds up") {
  const setting all[] = {from(option_layer::flag, "size", {"1gb"}),
                         from(option_layer::flag, "size", {"2gb"}),
                         from(option_layer::flag, "cards", {"a, b  c"}),
                         from(option_layer::flag, "cards", {"one", "2"})};
  findings found;
  const auto values = resolve(table, all, found);
  CHECK(found.errors.size() == 1);
  CHECK(mentions(found.errors, "given 2 times"));
  CHECK(values.get<std::vector<std::string>>("cards") ==
        std::vector<std::string>{"a", "b", "c", "1", "2"});
  CHECK(values.at("cards").text == "a,b,c,1,2");
}

TEST_CASE("a list refuses empty entries, and one entry twice in two spellings") {
  for (const auto* text : {"", "a,,b", "a,", ",", "one,1", "a a"}) {
    CAPTURE(text);
    const setting all[] = {from(option_layer::flag, "cards", {text})};
    findings found;
    resolve(table, all, found);
    CHECK(found.errors.size() == 1);
  }
}

TEST_CASE("a list has a bounded number of entries") {
  std::string many;
  for (int i = 0; i < 257; ++i)
    many += (i == 0 ? "" : ",") + std::to_string(i) + "_";
  const setting all[] = {from(option_layer::flag, "cards", {many})};
  findings found;
  resolve(table, all, found);
  CHECK(mentions(found.errors, "more than 256 entries"));
}

TEST_CASE("a value that is missing is an error, but for a switch it means true") {
  const setting all[] = {from(option_layer::flag, "size", {}),
                         from(option_layer::flag, "cards", {}),
                         from(option_layer::flag, "fast", {})};
  findings found;
  const auto values = resolve(table, all, found);
  CHECK(found.errors.size() == 2);
  CHECK(mentions(found.errors, "flag: needs a value (SIZE)"));
  CHECK(values.get<bool>("fast"));
  CHECK(values.given("fast"));
}

TEST_CASE("an option of a part that has not landed is refused wherever it stands") {
  const setting all[] = {from(option_layer::file, "future", {"1"}),
                         from(option_layer::flag, "future", {"1"})};
  findings found;
  resolve(table, all, found);
  CHECK(found.errors == std::vector<std::string>{"file:1: has not landed", "flag: has not landed"});
}

TEST_CASE("a size that is no whole number of bytes is cut with a warning") {
  const setting all[] = {from(option_layer::flag, "size", {"1.1gb"})};
  findings found;
  const auto values = resolve(table, all, found);
  CHECK(values.get<std::uint64_t>("size") == 1181116006);
  CHECK(mentions(found.warnings, "'1.1gb' is no whole number of bytes, taken as 1181116006b"));
}

TEST_CASE("what an option formats, it parses to the same value") {
  for (const auto& spec : table) {
    if (spec.fallback.empty()) continue;
    CAPTURE(spec.name);
    const std::vector<std::string> text{std::string(spec.fallback)};
    const auto value = parse_option(spec, text);
    REQUIRE(value);
    const std::vector<std::string> again{format_option(spec, *value)};
    CHECK(*parse_option(spec, again) == *value);
  }
}

TEST_CASE("the nearest name is found through a slip of the fingers, half a name and case") {
  constexpr std::string_view names[] = {"pool-size", "log-level", "addr", "http-addr", "nics"};
  CHECK(nearest("pool-szie", names) == "pool-size");
  CHECK(nearest("POOL_SIZE", names) == "pool-size");
  CHECK(nearest("loglevel", names) == "log-level");
  CHECK(nearest("pool", names) == "pool-size");
  CHECK(nearest("adr", names) == "addr");
  CHECK(nearest("nic", names) == "nics");
  CHECK(nearest("zzzzzzzz", names).empty());
  CHECK(nearest("", names).empty());
  CHECK(nearest("q", names).empty());
  CHECK(nearest(std::string(100'000, 'p'), names).empty());
}

TEST_CASE("help shows groups in order, limits, defaults and no line beyond 96 columns") {
  const auto text = describe_options(table);
  CHECK(text.find("First") < text.find("Second"));
  CHECK(text.find("--size SIZE") != std::string::npos);
  CHECK(text.find("How much. [1b to 1tb] (default 1gb)") != std::string::npos);
  CHECK(text.find("[1s to 1m]") != std::string::npos);
  std::size_t from_byte = 0;
  while (from_byte < text.size()) {
    const auto end = text.find('\n', from_byte);
    CHECK(end - from_byte <= 96);
    from_byte = end + 1;
  }
}

TEST_CASE("the environment name is the option's in capitals") {
  CHECK(environment_name("pool-size") == "KVD_POOL_SIZE");
}

}  // namespace
}  // namespace kvd
