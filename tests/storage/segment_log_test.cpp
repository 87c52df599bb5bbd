#include <cerrno>
#include <set>

#include "tests/storage/log_fixture.hpp"

using namespace kvd;
using namespace kvd::test;

TEST_CASE("a record is read back byte for byte, and survives a clean restart") {
  for (const std::uint32_t alignment : {512U, 4096U}) {
    log_fixture on(blank(4), {}, alignment);
    on.must_open();
    CHECK(on.log->recovered().created);
    const auto unit = std::uint64_t{alignment};
    for (std::uint64_t n = 0; n < 20; ++n) {
      CHECK(on.write(sample(n, unit * (1 + n % 5))) == 0);
    }
    for (std::uint64_t n = 0; n < 20; ++n)
      CHECK(on.read(sample(n, unit * (1 + n % 5))) == 0);
    CHECK(on.log->usage().records == 20);
    REQUIRE(on.log->close());
    on.must_open();
    CHECK(on.log->recovered().clean);
    CHECK(on.log->recovered().records == 20);
    CHECK(on.log->recovered().segments_scanned == 0);
    for (std::uint64_t n = 0; n < 20; ++n)
      CHECK(on.read(sample(n, unit * (1 + n % 5))) == 0);
  }
}

TEST_CASE("look-ups know what is stored, and how long it is") {
  log_fixture on(blank(3));
  on.must_open();
  const sample s(5);
  CHECK_FALSE(on.log->contains(s.key()));
  CHECK(on.log->payload_bytes(s.key()) == 0);
  CHECK(on.read(s) == ENOENT);
  CHECK(on.write(s) == 0);
  CHECK(on.log->contains(s.key()));
  CHECK(on.log->payload_bytes(s.key()) == s.payload_bytes);
  CHECK(on.read(sample(5, s.payload_bytes + 512)) == ENOENT);
  CHECK(on.read(sample(6)) == ENOENT);
  CHECK(on.read(s) == 0);
}

TEST_CASE("every part of the identity counts") {
  log_fixture on(blank(3));
  on.must_open();
  CHECK(on.write(sample(1)) == 0);
  for (int part = 0; part < 4; ++part) {
    reading other{sample(1)};
    if (part == 0) other.request.identity.name_space = "";
    if (part == 1) other.request.identity.group += 1;
    if (part == 2) other.request.identity.fingerprint.high += 1;
    if (part == 3) other.request.identity.hash = "hash-2";
    on.log->read(other.request);
    on.poll();
    CHECK(other.error == ENOENT);
  }
}

TEST_CASE("a record that is stored, or on its way, is refused") {
  log_fixture on(blank(3));
  on.must_open();
  writing first{sample(1)};
  writing second{sample(1)};
  on.log->append(first.request);
  on.log->append(second.request);
  on.poll();
  CHECK(first.error == 0);
  CHECK(second.error == EEXIST);
  CHECK(on.write(sample(1)) == EEXIST);
  CHECK(on.log->usage().records == 1);
}

TEST_CASE("what no segment could hold is refused, and what just fits is stored") {
  log_fixture on(blank(3));
  on.must_open();
  CHECK(on.write(sample(1, small_segment)) == EFBIG);
  // The segment's header, the record's header, one list unit and the trailer.
  const auto most = small_segment - 4 * 512;
  CHECK(on.write(sample(2, most + 512)) == EFBIG);
  CHECK(on.write(sample(2, most)) == 0);
  CHECK(on.read(sample(2, most)) == 0);
  CHECK(on.write(sample(3, 512)) == 0);
  CHECK(on.read(sample(2, most)) == 0);
}

TEST_CASE("an append without payload, or with a name that is too long, is refused") {
  log_fixture on(blank(3));
  on.must_open();
  writing none{sample(1)};
  none.request.payload = {};
  on.log->append(none.request);
  CHECK(none.error == EINVAL);
  const std::string longer(513, 'n');
  writing named{sample(1)};
  named.request.identity.name_space = longer;
  on.log->append(named.request);
  CHECK(named.error == EINVAL);
  writing longest{sample(1)};
  longest.request.identity.name_space = std::string_view(longer).substr(1);
  on.log->append(longest.request);
  on.poll();
  CHECK(longest.error == 0);
  CHECK(on.log->busy() == 0);
}

TEST_CASE("more appends and reads than there are slots wait their turn, in any order of ends") {
  log_fixture on(blank(20));
  seeded_random order(11);
  on.must_open();
  on.file.shuffle(&order);
  std::deque<writing> writes;
  for (std::uint64_t n = 0; n < 300; ++n)
    on.log->append(writes.emplace_back(sample(n)).request);
  CHECK(on.log->busy() == 300);
  on.poll();
  std::deque<reading> reads;
  for (std::uint64_t n = 0; n < 300; ++n)
    on.log->read(reads.emplace_back(sample(n)).request);
  on.poll();
  for (std::uint64_t n = 0; n < 300; ++n) {
    CHECK(writes[n].error == 0);
    CHECK(writes[n].times == 1);
    CHECK(reads[n].error == 0);
    CHECK(reads[n].right());
  }
  CHECK(on.log->usage().records == 300);
  REQUIRE(on.log->close());
  on.must_open();
  CHECK(on.log->usage().records == 300);
}

TEST_CASE("a record is not found before its write, and its segment's header, are done") {
  log_fixture on(blank(3), {durability::write});
  on.must_open();
  on.file.hold(true);
  writing one{sample(1)};
  on.log->append(one.request);
  CHECK(on.file.pending() == 2);
  CHECK_FALSE(on.log->contains(one.what.key()));
  on.file.hold(false);
  on.file.poll({});  // header and record
  CHECK(one.error == not_done);
  CHECK_FALSE(on.log->contains(one.what.key()));
  on.file.poll({});  // sync
  CHECK(one.error == 0);
  CHECK(on.log->contains(one.what.key()));
}

TEST_CASE("the oldest segment makes room, but one that was read is spared once") {
  log_fixture on(blank(4));
  on.must_open();
  constexpr std::uint64_t big = 120 << 10;  // two a segment
  std::uint64_t next = 0;
  for (; next < 8; ++next)
    CHECK(on.write(sample(next, big)) == 0);
  CHECK(on.log->usage().records == 8);
  CHECK(on.read(sample(0, big)) == 0);
  // Segment of 0 and 1 is spared, 2 and 3 go.
  for (; next < 10; ++next)
    CHECK(on.write(sample(next, big)) == 0);
  CHECK(on.read(sample(2, big)) == ENOENT);
  CHECK(on.read(sample(3, big)) == ENOENT);
  CHECK(on.log->contains(sample(0).key()));
  CHECK(on.log->contains(sample(1).key()));
  const auto usage = on.log->usage();
  CHECK(usage.segments_reclaimed == 1);
  CHECK(usage.records_reclaimed == 2);
  CHECK(usage.records == 8);
  CHECK(usage.segments_free == 0);
  // Spared once, not for ever.
  for (; next < 18; ++next)
    CHECK(on.write(sample(next, big)) == 0);
  CHECK_FALSE(on.log->contains(sample(0).key()));
  for (std::uint64_t n = next - 2; n < next; ++n)
    CHECK(on.read(sample(n, big)) == 0);
  // Given up, it may come again.
  CHECK(on.write(sample(0, big)) == 0);
  CHECK(on.read(sample(0, big)) == 0);
}

TEST_CASE("records that come and go many times over leave the usage right") {
  log_fixture on(blank(5));
  seeded_random order(3);
  on.must_open();
  on.file.shuffle(&order);
  for (int round = 0; round < 20; ++round) {
    std::deque<writing> writes;
    for (std::uint64_t n = 0; n < 100; ++n) {
      on.log->append(writes.emplace_back(sample(order.below(500))).request);
    }
    on.poll();
    std::uint64_t stored = 0;
    std::uint64_t bytes = 0;
    for (std::uint64_t n = 0; n < 500; ++n) {
      const sample s(n);
      if (!on.log->contains(s.key())) continue;
      ++stored;
      bytes += 512 + s.payload_bytes;
      CHECK(on.read(s) == 0);
    }
    CHECK(on.log->usage().records == stored);
    CHECK(on.log->usage().record_bytes == bytes);
  }
  CHECK(on.log->usage().segments_reclaimed > 10);
  CHECK(on.log->usage().records_corrupt == 0);
}

TEST_CASE("a read that its segment is taken from under ends as not stored") {
  log_fixture on(blank(2));
  on.must_open();
  constexpr std::uint64_t big = 200 << 10;
  CHECK(on.write(sample(0, big)) == 0);
  CHECK(on.write(sample(1, big)) == 0);
  on.file.hold(true);
  reading late{sample(0, big)};
  on.log->read(late.request);
  // The read marks its segment: let the hand pass once, then take it.
  std::deque<writing> writes;
  for (std::uint64_t n = 2; n < 6; ++n)
    on.log->append(writes.emplace_back(sample(n, big)).request);
  seeded_random order(5);
  on.file.hold(false);
  on.file.contents();
  on.file.shuffle(&order);
  on.poll();
  const bool ended_well = late.error == ENOENT || (late.error == 0 && late.right());
  CHECK(ended_well);
  CHECK(on.log->usage().records_corrupt == 0);
}

namespace {

// Appends its successor from its own completion.
struct chain {
  segment_log* log;
  std::deque<writing>* writes;
  std::uint64_t left;
  static void next(record_write& write, int) noexcept {
    auto& self = *static_cast<chain*>(write.owner);
    if (self.left-- == 0) return;
    auto& one = self.writes->emplace_back(sample(1));  // refused at once, each time
    one.request.owner = &self;
    one.request.on_done = next;
    self.log->append(one.request);
  }
};

}  // namespace

TEST_CASE("completions that append at once do not nest") {
  log_fixture on(blank(3));
  on.must_open();
  CHECK(on.write(sample(1)) == 0);
  std::deque<writing> writes;
  chain c{on.log.get(), &writes, 20000};
  writing first{sample(2)};
  first.request.owner = &c;
  first.request.on_done = chain::next;
  on.log->append(first.request);
  on.poll();
  CHECK(writes.size() == 20000);
}
