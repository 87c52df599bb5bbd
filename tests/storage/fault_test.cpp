// Requests that fail, and files that are not what they should be.
#include <cerrno>

#include "tests/storage/log_fixture.hpp"

using namespace kvd;
using namespace kvd::test;

namespace {

constexpr std::uint64_t big = 120 << 10;  // two a segment

std::string refusal(log_fixture& on) {
  const auto opened = on.open();
  CHECK_FALSE(opened.has_value());
  return opened ? std::string() : opened.error().detail;
}

memory_file::image closed_log() {
  log_fixture on(blank(2));
  on.must_open();
  for (std::uint64_t n = 0; n < 4; ++n)
    CHECK(on.write(sample(n)) == 0);
  REQUIRE(on.log->close());
  return on.file.contents();
}

// Flips a bit of every byte from `first` on and opens the log: reads are never wrong, and `served`
// of the four records at least are there.
void flip_bytes(memory_file::image image, std::uint64_t first, std::uint64_t bytes, int served) {
  const auto original = image;
  log_fixture on(std::move(image));
  for (auto at = first; at < first + bytes; ++at) {
    CAPTURE(at);
    on.log.reset();
    std::copy_n(original.begin(), 4096, on.file.contents().begin());
    on.file.contents()[at] ^= std::byte(1U << (at % 8));
    if (first < 4096) {
      CHECK_FALSE(refusal(on).empty());
    } else {
      on.must_open();
      int good = 0;
      for (std::uint64_t n = 0; n < 4; ++n) {
        const auto error = on.read(sample(n));
        const bool honest = error == 0 || error == ENOENT || error == EBADMSG;
        CHECK(honest);
        if (error == 0) ++good;
      }
      CHECK(good >= served);
      CHECK(on.log->usage().records == static_cast<std::uint64_t>(good));
    }
    on.file.contents()[at] = original[at];
  }
}

}  // namespace

TEST_CASE("a flipped bit is never served, wherever it is") {
  const auto listed = closed_log();
  flip_bytes(listed, 0, 4096, 0);
  flip_bytes(listed, small_segment, 512, 0);              // segment header
  flip_bytes(listed, small_segment + 512, 1024, 3);       // the first record, all of it
  flip_bytes(listed, 2 * small_segment - 1024, 1024, 4);  // footer: scanned instead
  auto unlisted = listed;
  std::fill_n(unlisted.begin() + 2 * small_segment - 1024, 1024, std::byte{0});
  flip_bytes(unlisted, small_segment + 512, 1024, 3);
}

TEST_CASE("another version is refused with both numbers") {
  log_fixture on(closed_log());
  on.file.contents()[16] = std::byte{2};
  CHECK(refusal(on).find("version 2, this kvd reads version 1") != std::string::npos);
}

TEST_CASE("a foreign file is refused and stays as it is") {
  for (const std::uint64_t at : {0, 4000, 5000, 32768}) {
    auto image = blank(3);
    image[at] = std::byte{0x7f};
    const auto before = image;
    log_fixture on(std::move(image));
    CHECK(refusal(on).find("not a kvd SSD file") != std::string::npos);
    CHECK(on.file.contents() == before);
    CHECK(on.file.done(file_io::kind::write) == 0);
  }
}

TEST_CASE("a file that was cut off, is too small or has another alignment is refused") {
  auto image = closed_log();
  image.resize(image.size() - 512);
  log_fixture cut(std::move(image));
  CHECK(refusal(cut).find("cut off") != std::string::npos);
  log_fixture coarse(closed_log(), {}, 4096);
  CHECK(refusal(coarse).find("4096") != std::string::npos);
  log_fixture small(blank(1));
  CHECK(refusal(small).find("too small") != std::string::npos);
  log_fixture tiny(memory_file::image(512));
  CHECK(refusal(tiny).find("512 bytes") != std::string::npos);
  log_fixture odd(blank(3), {durability::segment, small_segment + 512});
  CHECK(refusal(odd).find("power of two") != std::string::npos);
}

TEST_CASE("a superblock that cannot be read or written fails the start") {
  log_fixture on(blank(3));
  on.file.fail(file_io::kind::read, 0, EIO);
  CHECK(on.open().error().code == errc::io);
  on.file.fail(file_io::kind::write, 0, ENOSPC);
  CHECK(on.open().error().code == errc::io);
  on.must_open();
}

TEST_CASE("a record whose write fails is not stored; the others are") {
  for (const int error : {EIO, ENOSPC}) {
    log_fixture on(blank(3));
    on.must_open();
    CHECK(on.write(sample(1)) == 0);
    on.file.fail(file_io::kind::write, 0, error);
    CHECK(on.write(sample(2)) == error);
    CHECK_FALSE(on.log->contains(sample(2).key()));
    CHECK(on.write(sample(3)) == 0);
    CHECK(on.write(sample(2)) == 0);
    REQUIRE(on.log->close());
    on.must_open();
    for (std::uint64_t n = 1; n < 4; ++n)
      CHECK(on.read(sample(n)) == 0);
  }
}

TEST_CASE("a sync that fails fails the records that waited for it") {
  log_fixture on(blank(3), {durability::write});
  on.must_open();
  on.file.fail(file_io::kind::sync, 0, EIO);
  CHECK(on.write(sample(1)) == EIO);
  CHECK_FALSE(on.log->contains(sample(1).key()));
  CHECK(on.write(sample(1)) == 0);
}

TEST_CASE("what a failed sync may have lost is never told stored: record, segment header, footer") {
  // Every second sync fails and forgets; records, new segments and footers go on meanwhile.
  std::uint64_t kept = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    log_fixture on(blank(4), {durability::write});
    seeded_random chance(seed);
    on.must_open();
    on.file.shuffle(&chance);
    on.file.ail(file_io::kind::sync, 50, EIO);
    std::deque<writing> writes;
    for (std::uint64_t n = 0; n < 60; ++n) {
      on.log->append(writes.emplace_back(sample(n)).request);
      if (chance.below(3) == 0) on.file.poll({});
    }
    on.poll();
    log_fixture again(on.file.after_power_loss(chance), {durability::write});
    again.must_open();
    for (const auto& write : writes) {
      if (write.error != 0 || !on.log->contains(write.what.key())) continue;
      CHECK(again.read(write.what) == 0);
      ++kept;
    }
  }
  CHECK(kept > 0);
}

TEST_CASE("a disk whose syncs all fail costs at most two segments at level write") {
  log_fixture on(blank(6), {durability::write});
  on.must_open();
  for (std::uint64_t n = 0; n < 12; ++n)
    CHECK(on.write(sample(n, big)) == 0);
  on.file.fail(file_io::kind::sync, 0, EIO, true);
  for (std::uint64_t n = 12; n < 40; ++n)
    CHECK(on.write(sample(n, big)) == EIO);
  CHECK(on.log->usage().records >= 8);
  for (std::uint64_t n = 4; n < 12; ++n)
    CHECK(on.read(sample(n, big)) == 0);
}

TEST_CASE("when a segment's header cannot be written its records fail, and another one is tried") {
  log_fixture on(blank(4));
  on.must_open();
  on.file.fail(file_io::kind::write, 0, EIO);
  writing first{sample(1)};
  writing second{sample(2)};
  on.log->append(first.request);
  on.log->append(second.request);
  on.poll();
  CHECK(first.error == EIO);
  CHECK(second.error == EIO);
  CHECK(on.log->usage().records == 0);
  CHECK(on.write(sample(1)) == 0);
  CHECK(on.read(sample(1)) == 0);
  CHECK(on.log->usage().segments_free == 3);
  on.must_open();
  CHECK(on.read(sample(1)) == 0);
}

TEST_CASE("a disk that takes no more writes costs at most two segments, and reads go on") {
  log_fixture on(blank(6));
  on.must_open();
  for (std::uint64_t n = 0; n < 12; ++n)
    CHECK(on.write(sample(n, big)) == 0);
  on.file.fail(file_io::kind::write, 0, EIO, true);
  for (std::uint64_t n = 12; n < 40; ++n)
    CHECK(on.write(sample(n, big)) == EIO);
  CHECK(on.log->usage().records >= 8);
  for (std::uint64_t n = 4; n < 12; ++n)
    CHECK(on.read(sample(n, big)) == 0);
  CHECK_FALSE(on.log->close());
}

TEST_CASE("a segment whose footer cannot be written is served on, and scanned at the next start") {
  for (const auto what : {file_io::kind::write, file_io::kind::sync}) {
    log_fixture on(blank(4));
    on.must_open();
    for (std::uint64_t n = 0; n < 2; ++n)
      CHECK(on.write(sample(n, big)) == 0);
    writing third{sample(2, big)};
    on.file.fail(what, 0, EIO);
    on.log->append(third.request);
    on.poll();
    CHECK(third.error == 0);
    for (std::uint64_t n = 0; n < 3; ++n)
      CHECK(on.read(sample(n, big)) == 0);
    on.must_open();
    for (std::uint64_t n = 0; n < 3; ++n)
      CHECK(on.read(sample(n, big)) == 0);
    REQUIRE(on.log->close());
    on.must_open();
    CHECK(on.log->recovered().segments_scanned == 0);
    for (std::uint64_t n = 0; n < 3; ++n)
      CHECK(on.read(sample(n, big)) == 0);
  }
}

TEST_CASE("a read that fails is told so and forgets nothing") {
  log_fixture on(blank(3));
  on.must_open();
  CHECK(on.write(sample(1)) == 0);
  on.file.fail(file_io::kind::read, 0, EIO);
  CHECK(on.read(sample(1)) == EIO);
  CHECK(on.read(sample(1)) == 0);
}

TEST_CASE("a segment that cannot be read at the start is set aside") {
  log_fixture on(closed_log());
  on.file.fail(file_io::kind::read, 1, EIO);
  on.must_open();
  CHECK(on.log->recovered().segments_unreadable == 1);
  CHECK(on.log->usage().records == 0);
  CHECK(on.write(sample(9)) == 0);
}
