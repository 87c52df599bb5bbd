// A kill, or a power loss, at every write of a workload: what was promised is there afterwards.
#include <cerrno>

#include "tests/storage/log_fixture.hpp"

using namespace kvd;
using namespace kvd::test;

namespace {

constexpr std::uint64_t segments = 3;
constexpr std::uint64_t samples = 90;

sample nth(std::uint64_t n) {
  return sample(n, 512 * (1 + n * 7 % 50));
}

// Appends and reads in random order until the end, or the crash. Returns what was promised: told
// stored and not given up since.
std::vector<std::uint64_t> work(log_fixture& on, seeded_random& order) {
  std::vector<std::uint64_t> promised;
  if (!on.open()) return promised;
  std::deque<writing> writes;
  std::deque<reading> reads;
  for (std::uint64_t n = 0; n < samples; ++n) {
    on.log->append(writes.emplace_back(nth(n)).request);
    if (order.below(4) == 0) on.log->read(reads.emplace_back(nth(order.below(n + 1))).request);
    for (auto polls = order.below(4); polls > 0; --polls)
      on.file.poll({});
    if (on.file.crashed()) break;
  }
  on.poll();
  for (const auto& read : reads)
    CHECK((read.error != 0 || read.right()));
  for (const auto& write : writes) {
    if (write.error == 0 && on.log->contains(write.what.key())) {
      promised.push_back(write.what.number);
    }
  }
  return promised;
}

void check_usage(log_fixture& on) {
  std::uint64_t stored = 0;
  std::uint64_t bytes = 0;
  for (std::uint64_t n = 0; n < 2 * samples; ++n) {
    if (!on.log->contains(nth(n).key())) continue;
    ++stored;
    bytes += 512 + nth(n).payload_bytes;
  }
  CHECK(on.log->usage().records == stored);
  CHECK(on.log->usage().record_bytes == bytes);
}

// Opens the image twice, with work between, and looks at every record.
void check_restart(memory_file::image image, const std::vector<std::uint64_t>& promised) {
  log_fixture on(std::move(image));
  on.must_open();
  for (const auto n : promised)
    CHECK(on.read(nth(n)) == 0);
  for (std::uint64_t n = 0; n < samples; ++n)
    CHECK(on.read(nth(n)) != -2);
  check_usage(on);
  for (std::uint64_t n = samples; n < samples + 5; ++n)
    CHECK(on.write(nth(n)) == 0);
  std::vector<std::uint64_t> kept;
  for (std::uint64_t n = 0; n < samples + 5; ++n) {
    if (on.log->contains(nth(n).key())) kept.push_back(n);
  }
  on.must_open();  // as after another kill
  for (const auto n : kept)
    CHECK(on.read(nth(n)) == 0);
  check_usage(on);
  REQUIRE(on.log->close());
  on.must_open();
  CHECK(on.log->recovered().segments_scanned == 0);
  for (const auto n : kept)
    CHECK(on.read(nth(n)) == 0);
}

// At every write, or every few: a run takes a third of a second under a sanitizer.
void crash_everywhere(durability level, bool power, std::uint64_t step) {
  bool crashed = true;
  for (std::uint64_t n = 0; crashed; n += step) {
    CAPTURE(n);
    log_fixture on(blank(segments), {level});
    seeded_random order(n * 31 + 1);
    on.file.shuffle(&order);
    on.file.crash_at_write(n, order.below(20));
    const auto promised = work(on, order);
    crashed = on.file.crashed();
    const bool kept = !power || level == durability::write;
    auto image = power ? on.file.after_power_loss(order) : on.file.contents();
    on.file.shuffle(nullptr);
    check_restart(std::move(image), kept ? promised : std::vector<std::uint64_t>{});
  }
}

}  // namespace

TEST_CASE("after a kill at any write, every record that was told stored is there") {
  crash_everywhere(durability::process, false, 3);
  crash_everywhere(durability::segment, false, 1);
  crash_everywhere(durability::write, false, 2);
}

TEST_CASE("after a power loss at any write, synced records are there, and no wrong byte is") {
  crash_everywhere(durability::process, true, 3);
  crash_everywhere(durability::segment, true, 3);
  crash_everywhere(durability::write, true, 1);
}

TEST_CASE("a full segment survives a power loss at level segment") {
  log_fixture on(blank(4), {durability::segment});
  on.must_open();
  constexpr std::uint64_t big = 120 << 10;  // two a segment
  for (std::uint64_t n = 0; n < 5; ++n)
    CHECK(on.write(sample(n, big)) == 0);
  on.poll();
  seeded_random chance(4);
  log_fixture again(on.file.after_power_loss(chance));
  again.must_open();
  for (std::uint64_t n = 0; n < 4; ++n)
    CHECK(again.read(sample(n, big)) == 0);
}

TEST_CASE("the newest of two records under one key is found after a restart") {
  log_fixture on(blank(3));
  on.must_open();
  CHECK(on.write(sample(1, 200 << 10)) == 0);
  // Forget it as a broken one, then store it anew: both are on the file.
  auto& content = on.file.contents();
  content[small_segment + 1024 + 5] ^= std::byte{1};
  CHECK(on.read(sample(1, 200 << 10)) == EBADMSG);
  CHECK(on.read(sample(1, 200 << 10)) == ENOENT);
  CHECK(on.log->usage().records_corrupt == 1);
  CHECK(on.write(sample(1, 200 << 10)) == 0);
  on.must_open();
  CHECK(on.log->usage().records == 1);
  CHECK(on.read(sample(1, 200 << 10)) == 0);
}
