// The whole server role with an SSD tier on disks that stall, fail and forget, over several lives.
//
// Whatever the seed does: no wrong byte is loaded, what was told stored is there after a restart as
// far as its level promises, every query is answered, no pin, fetch or slot is lost, the tier comes
// back when its disk does, and the disk holds what the index says.

#include <doctest/doctest.h>
#include <xxhash.h>

#include "core/log.hpp"
#include "tests/sim/ssd_server.hpp"

using namespace kvd;

namespace {

// A story would log thousands of lines.
class quiet_log {
public:
  quiet_log() { log::set_level(static_cast<log::level>(static_cast<int>(log::level::error) + 1)); }
  ~quiet_log() { log::set_level(was_); }

private:
  log::level was_ = log::current_level();
};

void tell(sim::ssd_story& story, sim::tally& seen) {
  const auto lives = 2 + story.random.below(3);
  const auto level = static_cast<int>(story.level);
  CAPTURE(level);
  CAPTURE(story.alignment);
  CAPTURE(story.rotten);
  CAPTURE(story.disks.size());
  auto last = sim::ending::stop;
  for (std::uint64_t life = 0; life < lives; ++life) {
    CAPTURE(life);
    INFO("the last server ended by: ", static_cast<int>(last));
    sim::ssd_server server(story, seen);
    server.run(static_cast<int>(100 + story.random.below(700)));
    last = static_cast<sim::ending>(story.random.below(4));
    INFO("this one by: ", static_cast<int>(last));
    server.end(last);
  }
}

std::uint64_t digest(const sim::ssd_story& story) {
  std::uint64_t all = 0;
  for (const auto& disk : story.disks)
    all ^= XXH3_64bits_withSeed(disk.bytes.data(), disk.bytes.size(), all);
  return all;
}

}  // namespace

TEST_CASE("servers that live and die over failing disks load no wrong byte and keep their word") {
  const quiet_log quiet;
  sim::tally seen;
  int stories = 0;
  sim::for_each_seed(250, [&](std::uint64_t seed) {
    sim::ssd_story story(seed);
    tell(story, seen);
    ++stories;
  });
  MESSAGE("stories ", stories, ", blocks compared ", seen.blocks_compared, ", promises kept ",
          seen.promises_kept, ", answers Loading ", seen.loadings, ", fetches not asked for ",
          seen.fetches_idle, ", switched off ", seen.switched_off, ", came back ", seen.came_back,
          ", segments reclaimed ", seen.reclaimed, ", records corrupt ", seen.corrupt,
          ", disks that fsck complains of after a crash ", seen.unsound);
  if (stories < 100) return;
  // Stories in which nothing happens prove nothing.
  CHECK(seen.blocks_compared > 1000);
  CHECK(seen.promises_kept > 1000);
  CHECK(seen.loadings > 1000);
  CHECK(seen.fetches_idle > 0);
  CHECK(seen.came_back > 0);
  CHECK(seen.reclaimed > 0);
  CHECK(seen.corrupt > 0);
  for (const auto times : seen.endings)
    CHECK(times > 0);
}

TEST_CASE("the same seed leaves the same bytes on the disks") {
  const quiet_log quiet;
  sim::for_each_seed(5, [](std::uint64_t seed) {
    sim::tally seen;
    sim::ssd_story first(seed);
    sim::ssd_story second(seed);
    tell(first, seen);
    tell(second, seen);
    CHECK(digest(first) == digest(second));
  });
}
