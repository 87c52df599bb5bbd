// The SSD tier over a block store and a file in memory: what is written behind, fetched, given up.

#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>

#include "storage/memory_file.hpp"
#include "storage/ssd_tier.hpp"
#include "tests/memory/store_fixture.hpp"

using namespace kvd;
using namespace kvd::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t part_bytes = 4096;

// A memory_file never waits; the worker should not spin meanwhile.
void pause() {
  static std::mutex mutex;
  static std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, 1ms);
}

class patient_file final : public block_file {
public:
  patient_file(std::uint64_t bytes, std::uint32_t alignment)
      : in_(memory_file::image(bytes), alignment) {}
  void submit(file_io& io) noexcept override { in_.submit(io); }
  std::size_t poll(std::chrono::milliseconds wait) noexcept override {
    if (held.load() || (in_.pending() == 0 && wait > 0ms)) pause();
    return held.load() ? 0 : in_.poll(wait);
  }
  void wake() noexcept override {}
  std::uint64_t bytes() const noexcept override { return in_.bytes(); }
  std::uint32_t alignment() const noexcept override { return in_.alignment(); }
  std::string_view backend() const noexcept override { return in_.backend(); }
  memory_file& script() { return in_; }

  std::atomic<bool> held{false};  // poll() finishes nothing

private:
  memory_file in_;
};

std::byte odd_byte(std::uint32_t block, std::uint32_t part, std::uint64_t at, int salt) {
  return static_cast<std::byte>(block * 31 + part * 101 + at * 7 + at / 251 +
                                static_cast<std::uint64_t>(salt) * 57);
}

bool eventually(const std::function<bool()>& ready) {
  for (int i = 0; i < 10'000; ++i) {
    if (ready()) return true;
    pause();
  }
  return false;
}

struct fixture {
  explicit fixture(ssd_tier_options how = {}, std::size_t pool_bytes = 1 << 20,
                   std::uint32_t parts = 1, const std::function<void(memory_file&)>& script = {},
                   std::uint64_t bytes_a_part = part_bytes, std::uint32_t alignment = 512,
                   std::uint64_t slot_alignment = 512)
      : at(pool_bytes, "lru", false, 20, slot_alignment) {
    in = *at.store->open_scope("m", 0, simple_layout(bytes_a_part, parts, 1));
    auto file = std::make_unique<patient_file>(16 << 20, alignment);
    auto log = segment_log::open(*file, {.segment_bytes = 1 << 20}, at.random, at.time);
    REQUIRE(log);
    if (script) script(file->script());
    disk = file.get();
    std::vector<ssd_tier::opened_file> files;
    files.push_back({std::move(file), std::move(*log), {}});
    tier = std::make_unique<ssd_tier>(how, std::move(files), *at.store, at.time, numbers);
    at.store->on_sealed([this](std::span<const sealed_block> blocks) { tier->sealed(blocks); });
  }

  // Saves blocks whose bytes tell which they are.
  void save(const hashes& which, int first) {
    const auto parts = static_cast<std::uint32_t>(at.store->scope_of(in).parts.size());
    const std::uint32_t cells[] = {0};
    for (std::uint32_t part = 0; part < parts; ++part) {
      const auto claims = at.claim(in, part, which);
      for (const auto& claim : claims)
        std::memset(claim.address, byte_of(first + static_cast<int>(claim.position), part),
                    part_bytes);
      at.store->commit(claims, cells);
    }
  }
  static int byte_of(int id, std::uint32_t part) {
    return (id * 7 + static_cast<int>(part) * 101) & 0xFF;
  }
  bool written() {
    return eventually([this] {
      return numbers.write_queue.value() == 0 && numbers.writes_inflight.value() == 0;
    });
  }
  query_id id(std::string_view request) const { return {1, request, 0}; }
  // As a query that finds nothing in RAM.
  bool fetch(std::string_view request, const hashes& which, bool whole = false) {
    return tier->fetch(id(request), in, which.list(), {}, whole);
  }
  bool over(std::string_view request) {
    return eventually([&] { return tier->poll(id(request)) == lower_tier::progress::over; });
  }
  // Leading blocks in RAM; checks what they hold.
  std::size_t hits(const hashes& which, int first) {
    std::vector<block_index> pinned;
    const auto count = at.store->pin_prefix(in, which.list(), pinned);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::uint32_t part = 0; part < at.store->scope_of(in).parts.size(); ++part) {
        const auto* bytes = at.store->part_address(pinned[i], part);
        const auto wanted = static_cast<std::byte>(byte_of(first + static_cast<int>(i), part));
        CHECK(bytes[0] == wanted);
        CHECK(bytes[part_bytes - 1] == wanted);
      }
    }
    at.store->unpin(pinned);
    return count;
  }

  store_fixture at;
  patient_file* disk = nullptr;  // the tier's
  ssd_metrics numbers;
  scope_id in = 0;
  std::unique_ptr<ssd_tier> tier;  // its threads use all of the above
};

}  // namespace

TEST_CASE("what was sealed comes back after RAM has dropped it") {
  for (const std::uint32_t parts : {1U, 3U}) {
    fixture f({}, 1 << 20, parts);
    const hashes which(0, 20);
    f.save(which, 0);
    REQUIRE(f.written());
    f.at.store->drop_resident();
    CHECK(f.hits(which, 0) == 0);
    REQUIRE(f.fetch("r", which));
    REQUIRE(f.over("r"));
    CHECK(f.hits(which, 0) == 20);
    CHECK(f.tier->settle(f.id("r")).ssd == 20);
    CHECK(f.tier->poll(f.id("r")) == lower_tier::progress::none);
    CHECK(f.at.metrics.pinned_bytes.value() == 0);
    CHECK(f.at.store->check().empty());
  }
}

TEST_CASE("a fetched block is not written again, and one that is stored neither") {
  fixture f;
  const hashes which(0, 10);
  f.save(which, 0);
  REQUIRE(f.written());
  const auto once = f.numbers.write_bytes.value();
  f.at.store->drop_resident();
  REQUIRE(f.fetch("r", which));
  REQUIRE(f.over("r"));
  f.tier->settle(f.id("r"));
  REQUIRE(f.written());
  CHECK(f.numbers.write_bytes.value() == once);
}

TEST_CASE("a prefix is fetched up to its first gap, an exact set only when nothing is missing") {
  fixture f;
  f.save(hashes(0, 5), 0);
  REQUIRE(f.written());
  f.at.store->drop_resident();
  const hashes longer(0, 8);
  CHECK_FALSE(f.fetch("whole", longer, true));
  CHECK_FALSE(f.fetch("elsewhere", hashes(5, 3)));
  REQUIRE(f.fetch("prefix", longer));
  REQUIRE(f.over("prefix"));
  CHECK(f.tier->settle(f.id("prefix")).ssd == 5);
  CHECK(f.hits(longer, 0) == 5);
}

TEST_CASE("making room for a fetch does not evict what it is for") {
  fixture f;
  const hashes which(0, 20);
  f.save(which, 0);
  REQUIRE(f.written());
  f.at.store->drop_resident();
  f.save(hashes(15, 5), 15);  // the oldest in RAM, behind what is missing
  f.save(hashes(1000, 245), 1000);
  REQUIRE(f.written());
  REQUIRE(f.fetch("r", which));
  REQUIRE(f.over("r"));
  CHECK(f.hits(which, 0) == 20);
  f.tier->settle(f.id("r"));
  CHECK(f.at.metrics.pinned_bytes.value() == 0);
}

TEST_CASE("user-reports 43: a pool full of pinned blocks leaves room for a fetch") {
  fixture f;
  const hashes wanted(0, 2);
  f.save(wanted, 0);
  REQUIRE(f.written());
  f.at.store->drop_resident();
  // The fixture's store keeps 20 of 1000 for fetches.
  const hashes many(1000, 300);
  f.save(many, 1000);
  std::vector<block_index> pinned;
  f.at.store->pin_prefix(f.in, many.list(), pinned);
  CHECK(pinned.size() < 300);
  REQUIRE(f.fetch("r", wanted));
  REQUIRE(f.over("r"));
  CHECK(f.tier->settle(f.id("r")).ssd == 2);
  f.at.store->unpin(pinned);
}

TEST_CASE("the bounds of fetches hold: blocks together, fetches that wait") {
  fixture f({.fetch_blocks_max = 6});
  const hashes which(0, 10);
  f.save(which, 0);
  REQUIRE(f.written());
  f.at.store->drop_resident();
  CHECK_FALSE(f.fetch("whole", which, true));
  CHECK(f.numbers.fetch_blocks_refused.value() == 10);
  REQUIRE(f.fetch("r", which));
  REQUIRE(f.over("r"));
  CHECK(f.tier->settle(f.id("r")).ssd == 6);
  CHECK(f.hits(which, 0) == 6);
  fixture none({.fetch_queue = 0});
  none.save(which, 0);
  REQUIRE(none.written());
  none.at.store->drop_resident();
  CHECK_FALSE(none.fetch("r", which));
  CHECK(none.numbers.fetch_queue_full.value() == 1);
}

TEST_CASE("sectors that are larger than the slots reach into no other block") {
  fixture f({}, 1 << 20, 1, {}, 1536, 4096);
  const hashes which(0, 4);
  const std::uint32_t cells[] = {0};
  f.at.store->commit(f.at.claim(f.in, 0, which), cells);
  REQUIRE(f.written());
  CHECK(f.numbers.write_failures.value() == 4);
  CHECK(f.numbers.write_bytes.value() == 0);
  CHECK_FALSE(f.fetch("r", which));
}

TEST_CASE("parts of odd sizes reach a file of large sectors and come back beside others") {
  for (const std::uint64_t bytes : {1000, 2560, 5000}) {
    CAPTURE(bytes);
    fixture f({}, 2 << 20, 3, {}, bytes, 4096, 4096);
    const hashes which(0, 20);
    const hashes neighbours(100, 60);
    const auto other = *f.at.store->open_scope("other", 0, simple_layout(bytes, 1, 2));
    const auto fill = [&](scope_id in, std::uint32_t part, const hashes& of, int salt) {
      const std::uint32_t cells[] = {0};
      const auto claims = f.at.claim(in, part, of);
      REQUIRE(claims.size() == of.list().size());
      for (const auto& claim : claims) {
        for (std::uint64_t i = 0; i < bytes; ++i)
          claim.address[i] = odd_byte(claim.position, part, i, salt);
      }
      f.at.store->commit(claims, cells);
    };
    const auto holds = [&](scope_id in, std::uint32_t parts, const hashes& of, int salt) {
      std::vector<block_index> pinned;
      std::uint64_t wrong = 0;
      CHECK(f.at.store->pin_prefix(in, of.list(), pinned) == of.list().size());
      for (std::uint32_t block = 0; block < pinned.size(); ++block) {
        for (std::uint32_t part = 0; part < parts; ++part) {
          const auto* at = f.at.store->part_address(pinned[block], part);
          for (std::uint64_t i = 0; i < bytes; ++i)
            wrong += at[i] != odd_byte(block, part, i, salt);
        }
      }
      f.at.store->unpin(pinned);
      return wrong == 0;
    };
    for (std::uint32_t part = 0; part < 3; ++part)
      fill(f.in, part, which, 1);
    REQUIRE(f.written());
    CHECK(f.numbers.write_failures.value() == 0);
    CHECK(f.numbers.write_bytes.value() == 20 * 3 * ((bytes + 4095) / 4096 * 4096));
    f.at.store->drop_resident();
    // What is read lands between these.
    fill(other, 0, neighbours, 2);
    REQUIRE(f.fetch("r", which));
    REQUIRE(f.over("r"));
    CHECK(f.tier->settle(f.id("r")).ssd == 20);
    CHECK(holds(f.in, 3, which, 1));
    CHECK(holds(other, 1, neighbours, 2));
    CHECK(f.numbers.read_failures.value() == 0);
  }
}

TEST_CASE("a write queue that is full leaves blocks out and counts them") {
  fixture f({.write_queue_batches = 1, .writes_inflight = 1}, 64 << 20);
  f.disk->held.store(true);
  const hashes which(0, 4200);
  f.save(which, 0);
  CHECK(f.numbers.write_queue_full.value() > 0);
  CHECK(f.numbers.write_queue.value() <= static_cast<std::int64_t>(ssd_tier::batch_blocks));
  f.disk->held.store(false);
}

TEST_CASE("fetches of one prefix by many queries read each block once") {
  fixture f({.fetch_queue = 64});
  const hashes which(0, 50);
  f.save(which, 0);
  REQUIRE(f.written());
  f.at.store->drop_resident();
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i)
    names.push_back("r" + std::to_string(i));
  for (const auto& name : names)
    REQUIRE(f.fetch(name, which));
  for (const auto& name : names) {
    REQUIRE(f.over(name));
    CHECK(f.hits(which, 0) == 50);
    f.tier->settle(f.id(name));
  }
  CHECK(f.numbers.reads_done.value() == 50);
  CHECK(f.at.metrics.pinned_bytes.value() == 0);
}

TEST_CASE("an instance that ends, and a client that never asks again, give their pins back") {
  fixture f({.fetch_idle_max = 60s});
  const hashes which(0, 10);
  f.save(which, 0);
  REQUIRE(f.written());
  f.at.store->drop_resident();
  REQUIRE(f.fetch("r", which));
  REQUIRE(f.over("r"));
  CHECK(f.at.metrics.pinned_bytes.value() > 0);
  f.tier->forget_instance(2);
  CHECK(f.at.metrics.pinned_bytes.value() > 0);
  f.tier->forget_instance(1);
  CHECK(f.at.metrics.pinned_bytes.value() == 0);
  f.at.store->drop_resident();
  REQUIRE(f.fetch("again", which));
  REQUIRE(f.over("again"));
  f.at.time.advance(61s);
  f.tier->tick();
  CHECK(f.at.metrics.pinned_bytes.value() == 0);
  CHECK(f.tier->poll(f.id("again")) == lower_tier::progress::none);
  CHECK(f.numbers.fetches_idle.value() == 1);
}

TEST_CASE(
    "user-reports 44: ENOSPC switches the tier off, RAM goes on, and it comes back by itself") {
  fixture f({}, 1 << 20, 1, [](memory_file& file) {
    for (std::uint64_t n = 0; n < 4; ++n)
      file.fail(file_io::kind::write, n, ENOSPC);
  });
  const hashes which(0, 10);
  f.save(which, 0);
  REQUIRE(eventually([&] { return f.numbers.up.value() == 0; }));
  CHECK(f.tier->status().why_off == std::strerror(ENOSPC));
  CHECK(f.hits(which, 0) == 10);
  CHECK_FALSE(f.fetch("r", which));
  REQUIRE(f.written());
  for (int tries = 0; tries < 8 && f.numbers.up.value() == 0; ++tries) {
    f.at.time.advance(600s);
    f.tier->tick();
    f.save(hashes(100 + tries, 1), 100 + tries);
    REQUIRE(f.written());
  }
  CHECK(f.numbers.up.value() == 1);
  CHECK(f.tier->status().why_off.empty());
}

TEST_CASE("a tier that has stayed on for long tries again after 5 s, not after its last pause") {
  fixture f({.own_threads = false});
  const auto fail_once = [&f](int id) {
    f.disk->script().fail(file_io::kind::write, 0, EIO);
    f.save(hashes(id, 1), id);
    for (int round = 0; round < 4; ++round)
      f.tier->step(0);
    REQUIRE(f.numbers.up.value() == 0);
    REQUIRE(f.tier->quiet());
  };
  const auto pause_of = [&f] {
    auto seconds = 0s;
    for (; f.numbers.up.value() == 0; seconds += 1s) {
      f.at.time.advance(1s);
      f.tier->tick();
    }
    return seconds;
  };
  fail_once(0);
  CHECK(pause_of() == 5s);
  fail_once(1);
  CHECK(pause_of() == 10s);
  f.at.time.advance(301s);
  f.tier->tick();
  fail_once(2);
  CHECK(pause_of() == 5s);
}

TEST_CASE("a read that fails shortens the fetch and is no hit") {
  fixture f({.reads_inflight = 1}, 1 << 20, 1,
            [](memory_file& file) { file.fail(file_io::kind::read, 3, EIO); });
  const hashes which(0, 10);
  f.save(which, 0);
  REQUIRE(f.written());
  f.at.store->drop_resident();
  REQUIRE(f.fetch("r", which));
  REQUIRE(f.over("r"));
  CHECK(f.hits(which, 0) == 3);
  CHECK(f.tier->settle(f.id("r")).ssd == 9);
  CHECK(f.numbers.read_failures.value() == 1);
}
