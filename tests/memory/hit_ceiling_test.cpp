#include "memory/hit_ceiling.hpp"

#include <cmath>
#include <cstring>
#include <thread>

#include <doctest/doctest.h>

using namespace kvd;
using namespace std::chrono_literals;

namespace {

std::string hash_of(std::uint64_t number) {
  std::string out(16, '\0');
  std::memcpy(out.data(), &number, sizeof(number));
  return out;
}

std::unique_ptr<hit_ceiling> ceiling(std::vector<std::chrono::seconds> windows, unsigned bits,
                                     const kvd::clock& time) {
  auto made = hit_ceiling::create({.windows = std::move(windows), .bucket_bits = bits}, time);
  REQUIRE(made);
  return std::move(*made);
}

void miss_range(hit_ceiling& of, std::string_view name_space, std::uint64_t first,
                std::uint64_t count) {
  auto query = of.begin(name_space, count);
  for (std::uint64_t i = 0; i < count; ++i)
    query.miss(hash_of(first + i));
}

}  // namespace

TEST_CASE("distinct misses are estimated within four standard errors from 0 to a million") {
  for (const unsigned bits : {4U, 12U, 16U, 18U}) {
    const double error = 1.04 / std::sqrt(static_cast<double>(1U << bits));
    for (const std::uint64_t count : {0U, 1U, 10U, 1000U, 30'000U, 150'000U, 1'000'000U}) {
      fake_clock time;
      const auto subject = ceiling({15min}, bits, time);
      miss_range(*subject, "m", 0, count);
      const auto seen = static_cast<double>(subject->read()[0].distinct_misses);
      CAPTURE(bits);
      CAPTURE(count);
      // Half a block is what rounding alone may cost.
      CHECK(std::abs(seen - static_cast<double>(count)) <=
            4 * error * static_cast<double>(count) + 0.5);
    }
  }
}

TEST_CASE("asking for the same blocks again raises the requests and not the distinct misses") {
  fake_clock time;
  const auto subject = ceiling({15min}, 16, time);
  for (int round = 0; round < 10; ++round)
    miss_range(*subject, "m", 0, 1000);
  const auto seen = subject->read()[0];
  CHECK(seen.requests == 10'000);
  CHECK(seen.hit_rate > 0.89);
  CHECK(seen.hit_rate < 0.91);
}

TEST_CASE("hits count as requests alone: all hits is a ceiling of 1, no request one of 0") {
  fake_clock time;
  const auto subject = ceiling({15min}, 16, time);
  CHECK(subject->read()[0].hit_rate == 0);
  subject->begin("m", 500);
  CHECK(subject->read()[0].requests == 500);
  CHECK(subject->read()[0].distinct_misses == 0);
  CHECK(subject->read()[0].hit_rate == 1);
}

TEST_CASE("only distinct misses: the ceiling is 0 and never below") {
  fake_clock time;
  const auto subject = ceiling({15min}, 4, time);
  miss_range(*subject, "m", 0, 5000);
  CHECK(subject->read()[0].hit_rate >= 0);
  CHECK(subject->read()[0].hit_rate <= 1);
}

TEST_CASE("equal hashes of two namespaces are two blocks, wherever the border between them lies") {
  fake_clock time;
  const auto subject = ceiling({15min}, 16, time);
  subject->begin("ab", 1).miss("cd");
  subject->begin("abc", 1).miss("d");
  subject->begin("a", 1).miss("bcd");
  CHECK(subject->read()[0].distinct_misses == 3);
}

TEST_CASE("each window forgets what is older than itself, and the longer ones remember it") {
  fake_clock time;
  const auto subject = ceiling({15min, 1h, 24h}, 16, time);
  miss_range(*subject, "m", 0, 1000);
  time.advance(16min);
  auto seen = subject->read();
  CHECK(seen[0].requests == 0);
  CHECK(seen[0].distinct_misses == 0);
  CHECK(seen[1].requests == 1000);
  time.advance(46min);
  seen = subject->read();
  CHECK(seen[1].requests == 0);
  CHECK(seen[2].requests == 1000);
  CHECK(seen[2].distinct_misses > 980);
  time.advance(25h);
  CHECK(subject->read()[2].requests == 0);
}

TEST_CASE("what slides out of a window is taken back slot by slot") {
  fake_clock time;
  const auto subject = ceiling({15min}, 16, time);
  for (int minute = 0; minute < 30; ++minute) {
    miss_range(*subject, "m", static_cast<std::uint64_t>(minute) * 100, 100);
    time.advance(1min);
  }
  // The slot of now is empty still, so fourteen of the last minutes are in the window.
  CHECK(subject->read()[0].requests == 1400);
}

TEST_CASE("threads that miss at once lose nothing") {
  fake_clock time;
  const auto subject = ceiling({15min, 1h}, 14, time);
  const auto alone = ceiling({15min, 1h}, 14, time);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&subject, t] { miss_range(*subject, "m", t * 20'000, 20'000); });
  for (auto& each : threads)
    each.join();
  miss_range(*alone, "m", 0, 80'000);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(subject->read()[i].requests == 80'000);
    CHECK(subject->read()[i].distinct_misses == alone->read()[i].distinct_misses);
  }
}

TEST_CASE("windows carry canonical labels") {
  CHECK(window_label(15min) == "15m");
  CHECK(window_label(60min) == "1h");
  CHECK(window_label(24h) == "1d");
  CHECK(window_label(90s) == "90s");
  CHECK(window_label(36h) == "36h");
}

TEST_CASE("options out of bounds are refused by name") {
  fake_clock time;
  const auto refused = [&](std::vector<std::chrono::seconds> windows, unsigned bits) {
    const auto made = hit_ceiling::create({.windows = windows, .bucket_bits = bits}, time);
    REQUIRE_FALSE(made);
    CHECK(made.error().code == errc::invalid_argument);
    return made.error().detail;
  };
  CHECK(refused({15min}, 3) == "3 bucket bits are outside 4..18");
  CHECK(refused({15min}, 19) == "19 bucket bits are outside 4..18");
  CHECK(refused({59s}, 16) == "a hit-rate window of 59 s is under 60 s");
  CHECK(refused({1h, 60min}, 16) == "the hit-rate window 1h occurs twice");
  CHECK(refused({24h * 3650}, 18).find("3650d") != std::string::npos);
  CHECK(refused({1h, 2h, 3h, 4h, 5h, 6h, 7h, 8h, 9h}, 4).find("9 hit-rate windows") == 0);
}

TEST_CASE("the default windows cost under 5 MB") {
  fake_clock time;
  CHECK(ceiling({15min, 1h, 24h}, 16, time)->bytes() == 63U << 16);
}
