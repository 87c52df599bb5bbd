#include "core/units.hpp"

#include <array>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "core/random.hpp"

namespace kvd {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = kib * kib;
constexpr std::uint64_t gib = kib * mib;
constexpr std::uint64_t tib = kib * gib;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a size is a decimal and a unit of 1024 steps, in any case, with or without blanks") {
  const std::pair<const char*, std::uint64_t> cases[] = {
      {"30gb", 30 * gib},
      {"30 GB", 30 * gib},
      {" 30\tGb ", 30 * gib},
      {"1.5tb", tib + tib / 2},
      {"512mb", 512 * mib},
      {"10GiB", 10 * gib},
      {"5G", 5 * gib},
      {"5GB", 5 * gib},
      {"4096", 4096},
      {"64KiB", 64 * kib},
      {"64k", 64 * kib},
      {"7m", 7 * mib},
      {"7MIB", 7 * mib},
      {"2t", 2 * tib},
      {"2TiB", 2 * tib},
      {"9b", 9},
      {"0", 0},
      {"0.5kb", 512},
      {".5kb", 512},
      {"5.gb", 5 * gib},
      {"0.000", 0},
      {"18446744073709551615", 18446744073709551615U},
      {"00000000000000000000000000000012kb", 12 * kib},
  };
  for (const auto& [text, bytes] : cases) {
    CAPTURE(text);
    const auto size = parse_bytes(text);
    REQUIRE(size);
    CHECK(size->bytes == bytes);
    CHECK(size->exact);
  }
}

TEST_CASE("a size that makes no sense is refused and quoted") {
  const std::pair<const char*, const char*> cases[] = {
      {"-5", "negative"},
      {"-5gb", "negative"},
      {"-0", "negative"},
      {"+5gb", "does not start with a number"},
      {"50%", "percentage"},
      {"50 %", "percentage"},
      {"", "empty"},
      {"   ", "empty"},
      {"NaN", "does not start with a number"},
      {"inf", "does not start with a number"},
      {"infgb", "does not start with a number"},
      {"gb", "does not start with a number"},
      {".", "does not start with a number"},
      {".gb", "does not start with a number"},
      {"1e9", "unknown unit 'e9'"},
      {"0x10", "unknown unit 'x10'"},
      {"5pb", "unknown unit 'pb'"},
      {"5gbb", "unknown unit 'gbb'"},
      {"5 g b", "unknown unit 'g b'"},
      {"1.2.3gb", "unknown unit '.3gb'"},
      {"1,5gb", "unknown unit ',5gb'"},
      {"18446744073709551616", "too large"},
      {"16777216tb", "too large"},
      {"99999999999999999999999999999999999999999999999999gb", "too large"},
  };
  for (const auto& [text, why] : cases) {
    CAPTURE(text);
    const auto size = parse_bytes(text);
    REQUIRE_FALSE(size);
    CHECK(size.error().code == errc::invalid_argument);
    CAPTURE(size.error().detail);
    CHECK(contains(size.error().detail, why));
  }
}

TEST_CASE("a fraction of a byte is cut, and the parser says so") {
  const auto size = parse_bytes("1.1gb");
  REQUIRE(size);
  CHECK(size->bytes == 1181116006);
  CHECK_FALSE(size->exact);
  const auto tiny = parse_bytes("0.9");
  REQUIRE(tiny);
  CHECK(tiny->bytes == 0);
  CHECK_FALSE(tiny->exact);
  CHECK_FALSE(parse_bytes("1.0000000000000000000000001kb")->exact);
}

TEST_CASE("the largest unit that divides a size is what a person reads") {
  CHECK(format_bytes(0) == "0b");
  CHECK(format_bytes(4097) == "4097b");
  CHECK(format_bytes(4096) == "4kb");
  CHECK(format_bytes(1536 * mib) == "1536mb");
  CHECK(format_bytes(30 * gib) == "30gb");
  CHECK(format_bytes(2 * tib) == "2tb");
}

TEST_CASE("formatting a size and parsing it again gives the same bytes") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    seeded_random random(seed);
    for (int i = 0; i < 5000; ++i) {
      // Every magnitude is as likely as any other, round numbers included.
      const auto bits = random.below(65);
      auto bytes = bits == 0 ? 0 : random.next() >> (64 - bits);
      if (random.below(2) == 0) bytes = bytes >> 40 << 40;
      const auto again = parse_bytes(format_bytes(bytes));
      REQUIRE(again);
      REQUIRE(again->bytes == bytes);
      REQUIRE(again->exact);
    }
  }
}

TEST_CASE("a duration without a unit is seconds") {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"10", 10'000},     {"10s", 10'000},  {"10 S", 10'000}, {"5m", 300'000},
      {"5min", 300'000},  {"2h", 7200'000}, {"100ms", 100},   {"1d", 86'400'000},
      {"1.5h", 5400'000}, {"0", 0},         {"0.25", 250},    {"1.5 ms", 1},
  };
  for (const auto& [text, ms] : cases) {
    CAPTURE(text);
    const auto span = parse_duration(text);
    REQUIRE(span);
    CHECK(span->length.count() == ms);
  }
  CHECK_FALSE(parse_duration("1.5ms")->exact);
}

TEST_CASE("a duration that makes no sense is refused") {
  for (const auto* text : {"-1s", "5y", "5 weeks", "", "s", "10%", "nan", "1e3", "1h30m",
                           "99999999999d", "18446744073709551616"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_duration(text));
  }
}

TEST_CASE("formatting a duration and parsing it again gives the same time") {
  CHECK(format_duration(std::chrono::seconds(0)) == "0s");
  CHECK(format_duration(std::chrono::hours(24)) == "1d");
  CHECK(format_duration(std::chrono::seconds(90)) == "90s");
  seeded_random random(7);
  for (int i = 0; i < 5000; ++i) {
    const std::chrono::milliseconds length(random.next() >> (30 + random.below(34)));
    const auto again = parse_duration(format_duration(length));
    REQUIRE(again);
    REQUIRE(again->length == length);
  }
}

TEST_CASE("a ratio lies between 0 and 1") {
  CHECK(parse_ratio("0") == 0.0);
  CHECK(parse_ratio("1.0") == 1.0);
  CHECK(parse_ratio(" 0.1 ") == 0.1);
  CHECK(parse_ratio(".5") == 0.5);
  for (const auto* text :
       {"1.0001", "2", "-0.1", "50%", "", "nan", "0.5x", "1e-3", "1.000000000000000000000001"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_ratio(text));
  }
}

TEST_CASE("a count is a whole number without sign, point or unit") {
  CHECK(parse_unsigned("0") == 0U);
  CHECK(parse_unsigned(" 42 ") == 42U);
  for (const auto* text :
       {"", "-1", "+1", "1.0", "1.", "4k", "0x4", "18446744073709551616", "1 2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_unsigned(text));
  }
}

TEST_CASE("a switch knows four pairs of words") {
  for (const auto* text : {"true", "YES", "on", "1", " True "}) {
    CAPTURE(text);
    CHECK(parse_bool(text) == true);
  }
  for (const auto* text : {"false", "No", "off", "0"}) {
    CAPTURE(text);
    CHECK(parse_bool(text) == false);
  }
  for (const auto* text : {"", "2", "maybe", "truee"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bool(text));
  }
}

TEST_CASE("quoting keeps a message on one line and readable") {
  CHECK(in_quotes("a\nb\x7f") == "'a\\x0ab\\x7f'");
  CHECK(in_quotes(std::string(65, 'x')) == "'" + std::string(64, 'x') + "...'");
}

}  // namespace
}  // namespace kvd
