#include "storage/fsck.hpp"

#include "tests/storage/log_fixture.hpp"

using namespace kvd;
using namespace kvd::test;

namespace {

constexpr std::uint64_t big = 120 << 10;  // two a segment

memory_file::image killed_log() {
  log_fixture on(blank(4));
  on.must_open();
  for (std::uint64_t n = 0; n < 5; ++n)
    CHECK(on.write(sample(n, big)) == 0);
  return on.file.contents();
}

}  // namespace

TEST_CASE("fsck counts what a start would find, and writes nothing") {
  memory_file file(killed_log());
  const auto before = file.contents();
  const auto report = fsck(file, false);
  CHECK(report.valid);
  CHECK(report.sound());
  CHECK_FALSE(report.clean);
  CHECK(report.segments == 4);
  CHECK(report.segments_listed == 2);
  CHECK(report.segments_scanned == 1);
  CHECK(report.segments_free == 1);
  CHECK(report.records == 5);
  CHECK(report.record_bytes == 5 * (big + 512));
  CHECK(report.findings.empty());
  CHECK(file.contents() == before);
}

TEST_CASE("fsck finds a changed payload, and its repair drops the record") {
  log_fixture on(killed_log());
  on.file.contents()[small_segment + 1024 + 77] ^= std::byte{4};
  const auto found = fsck(on.file, false);
  CHECK_FALSE(found.sound());
  CHECK(found.records == 4);
  CHECK(found.records_corrupt == 1);
  REQUIRE(found.findings.size() == 1);
  CHECK(found.findings[0] == "segment 0, record at unit 1: the payload's checksum does not match");
  const auto repaired = fsck(on.file, true);
  CHECK(repaired.repaired);
  CHECK(repaired.footers_written == 2);  // that one, and the open segment's
  const auto after = fsck(on.file, false);
  CHECK(after.sound());
  CHECK(after.records == 4);
  CHECK(after.segments_scanned == 0);
  on.must_open();
  CHECK(on.log->recovered().segments_scanned == 0);
  CHECK_FALSE(on.log->contains(sample(0, big).key()));
  for (std::uint64_t n = 1; n < 5; ++n)
    CHECK(on.read(sample(n, big)) == 0);
}

TEST_CASE("fsck tells a broken footer and writes it anew") {
  memory_file file(killed_log());
  file.contents()[2 * small_segment - 1024 + 3] ^= std::byte{1};  // the list
  file.contents()[3 * small_segment - 1] ^= std::byte{1};         // a trailer
  const auto found = fsck(file, false);
  CHECK(found.segments_broken == 2);
  CHECK(found.segments_scanned == 3);
  CHECK(found.records == 5);
  CHECK(fsck(file, true).footers_written == 3);
  CHECK(fsck(file, false).sound());
}

TEST_CASE("fsck says what is no log") {
  memory_file empty(blank(3));
  CHECK(fsck(empty, true).blank);
  auto image = blank(3);
  image[3] = std::byte{9};
  memory_file foreign(image);
  const auto report = fsck(foreign, true);
  CHECK_FALSE(report.valid);
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0] == "not a kvd SSD file");
  CHECK(foreign.contents() == image);
}
