#include "tests/sim/ssd_server.hpp"

#include <algorithm>
#include <cerrno>

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>
#include <doctest/doctest.h>

#include "storage/aligned_bytes.hpp"
#include "storage/fsck.hpp"

using namespace std::chrono_literals;

namespace kvd::sim {

namespace {

// A retry is at most this far away, and the tick that looks for it.
constexpr auto back_on_within = 301s;
// A fetch waits this long for somebody else's copy; everything else of it is work, not time.
constexpr int loading_seconds_max = 12;

ssd_tier_options tier_options(seeded_random& random) {
  return {.write_queue_batches = 1,
          .writes_inflight = 1 + random.below(4),
          .fetch_queue = 1 + random.below(3),
          .reads_inflight = 1 + random.below(8),
          .fetch_blocks_max = 6 + random.below(30),
          .own_threads = false};
}

}  // namespace

ssd_server::ssd_server(ssd_story& story, tally& seen)
    : story_(story), seen_(seen), at_((12 + 12 * story.random.below(3)) * ranks * part_bytes, 150),
      world_(story.random.next(), config_),
      registry_(at_.instances, *at_.store, *at_.leases, at_.opener, control_) {
  disks_.resize(story_.disks.size());
  std::vector<ssd_tier::opened_file> files;
  for (std::size_t i = 0; i < disks_.size(); ++i) {
    auto& side = disks_[i];
    side.file = std::make_unique<memory_file>(std::move(story_.disks[i].bytes), story_.alignment);
    side.file->shuffle(&story_.random);
    auto file = std::make_unique<borrowed_file>(*side.file);
    const log_options how{.level = story_.level, .segment_bytes = log_segment};
    if (story_.rotten) side.file->ail(file_io::kind::read, below(4), EIO);
    auto log = segment_log::open(*file, how, story_.random, at_.time);
    heal(side);
    if (!log && story_.rotten) log = segment_log::open(*file, how, story_.random, at_.time);
    REQUIRE_MESSAGE(log.has_value(), (log ? std::string() : log.error().detail));
    check_promises(i, **log);
    side.log = log->get();
    files.push_back({std::move(file), std::move(*log), {}});
    const auto sure = side.stored.size();
    see_stored(side);
    for (std::size_t at = sure; at < side.stored.size(); ++at)
      side.doubtful[side.stored[at]] = true;
  }
  options_ = tier_options(story_.random);
  tier_ = std::make_unique<ssd_tier>(options_, std::move(files), *at_.store, at_.time, numbers_);
  at_.store->on_sealed([this](std::span<const sealed_block> blocks) { tier_->sealed(blocks); });
  queries_ = std::make_unique<query_path>(*at_.store, *at_.leases, nullptr, tier_.get());
  spawn();
  ++story_.lives;
}

ssd_server::~ssd_server() {
  take_down();
}

void ssd_server::spawn() {
  const kvd::clock* time = &at_.time;
  engine_ = world_.actors().spawn(engine, &registry_, &control_, time);
  cache_ = world_.actors().spawn(cache, cache_parts{.store = at_.store.get(),
                                                    .leases = at_.leases.get(),
                                                    .saves = &at_.saves,
                                                    .instances = &at_.instances,
                                                    .time = &at_.time,
                                                    .metrics = &control_});
  ssd_ = world_.actors().spawn(keep_ssd, tier_.get(), &control_, time);
  at_.store->on_pressure([this] { caf::anon_send(cache_, message::trim{}); });
  registry_.on_gone([weak = caf::actor_cast<caf::weak_actor_ptr>(ssd_)](auto serial) {
    if (auto to = caf::actor_cast<ssd_actor>(weak)) {
      caf::anon_send(to, message::instance_gone{serial});
    }
  });
}

void ssd_server::take_down() {
  if (!tier_) return;
  at_.store->on_pressure({});
  caf::anon_send(engine_, message::stop{});
  caf::anon_send(cache_, message::stop{});
  caf::anon_send(ssd_, message::stop{});
  engine_ = nullptr;
  cache_ = nullptr;
  ssd_ = nullptr;
  world_.run(1000);
  queries_.reset();
  for (auto& side : disks_)
    side.log = nullptr;
  tier_.reset();
  at_.store->on_sealed({});
}

// -- promises ------------------------------------------------------------------------------------

// What was told stored before the last server ended is there, and can be read.
void ssd_server::check_promises(std::size_t index, segment_log& log) {
  auto& owed = story_.disks[index];
  const aligned_bytes memory(ranks * part_bytes);
  std::uint64_t lost = 0;
  for (std::size_t i = 0; i < owed.promised.size(); ++i) {
    const io_piece piece{memory.data(), memory.size()};
    int error = -1;
    record_read read{
        story_.identity(owed.promised[i]),
        {&piece, 1},
        [](record_read& done, int how) noexcept { *static_cast<int*>(done.owner) = how; },
        &error};
    log.read(read);
    while (log.busy() > 0)
      disks_[index].file->poll({});
    if (error == 0) {
      disks_[index].stored.push_back(owed.promised[i]);
      continue;
    }
    ++lost;
    CAPTURE(owed.promised[i]);
    CHECK_MESSAGE(i + owed.late >= owed.promised.size(), "a promised block is gone: ", error);
  }
  CHECK(lost <= owed.lost_max);
  seen_.promises_kept += owed.promised.size() - lost;
  owed = {};
}

void ssd_server::promise(ending how) {
  for (std::size_t i = 0; i < disks_.size(); ++i) {
    auto& side = disks_[i];
    auto& owed = story_.disks[i];
    see_stored(side);
    if (story_.rotten) continue;
    // A sync that failed may have lost what was written before, and no later one brings it back.
    if (how == ending::stop && side.writes_failed && story_.level != durability::write) continue;
    if (how == ending::power_loss && story_.level != durability::write) {
      if (story_.level == durability::process || side.writes_failed) continue;
      // The last two segments may not have been synced.
      const auto records = records_a_segment(story_.alignment);
      owed.lost_max = 2 * records;
      owed.late = 3 * records;
    }
    owed.promised = side.stored;
    std::erase_if(owed.promised, [&](int name) { return side.doubtful[name]; });
  }
}

// Keeps the list of what the log tells stored, in the order in which it came.
void ssd_server::see_stored(disk_side& side) {
  std::array<bool, name_count> now{};
  for (int name = 0; name < name_count; ++name)
    now[name] = story_.known(name) && side.log->contains(story_.keys[name]);
  std::erase_if(side.stored, [&](int name) { return !now[name]; });
  for (int name = 0; name < name_count; ++name)
    side.doubtful[name] = side.doubtful[name] && now[name];
  for (const auto name : side.stored)
    now[name] = false;
  for (int name = 0; name < name_count; ++name) {
    if (now[name]) side.stored.push_back(name);
  }
}

// What can be said at any time.
void ssd_server::check_usage() {
  for (auto& side : disks_) {
    const auto used = side.log->usage();
    REQUIRE(used.records == side.stored.size());
    REQUIRE(used.record_bytes == used.records * (story_.alignment + ranks * part_bytes));
    REQUIRE(used.segments_free <= used.segments);
  }
  REQUIRE(tier_->status().fetch_blocks <= options_.fetch_blocks_max);
  REQUIRE(at_.store->check() == "");
}

// -- disks ---------------------------------------------------------------------------------------

void ssd_server::round(std::size_t disk) {
  tier_->step(disk);
  see_stored(disks_[disk]);
}

void ssd_server::trouble() {
  auto& side = disks_[below(disks_.size())];
  const int error = below(2) == 0 ? EIO : ENOSPC;
  switch (below(12)) {
  case 0: side.file->hold(true); return;
  case 1: side.file->ail(file_io::kind::write, below(2) == 0 ? 30 : 100, error); break;
  case 2: side.file->ail(file_io::kind::read, 20, EIO); break;
  case 3: side.file->ail(file_io::kind::sync, 50, EIO); break;
  default: heal(side); return;
  }
  side.writes_failed = true;
  if (!story_.rotten) return;
  auto& bytes = side.file->contents();
  const auto at = ssd::superblock_bytes + below(bytes.size() - ssd::superblock_bytes);
  bytes[at] ^= static_cast<std::byte>(1U << below(8));
}

void ssd_server::heal(disk_side& side) {
  side.file->hold(false);
  for (const auto kind : {file_io::kind::read, file_io::kind::write, file_io::kind::sync})
    side.file->ail(kind, 0, 0);
}

void ssd_server::advance(duration by) {
  at_.time.advance(by);
  world_.advance(by);
}

// -- the end -------------------------------------------------------------------------------------

void ssd_server::run(int acts) {
  const bool healthy = below(3) == 0;
  for (int i = 0; i < acts; ++i) {
    act();
    if (!healthy && below(30) == 0) trouble();
    if (i % 8 == 0) check_usage();
  }
}

// Everything that runs comes to its end.
void ssd_server::drain(bool healthy) {
  for (auto& side : disks_) {
    if (healthy) heal(side);
    side.file->hold(false);
  }
  int seconds = 0;
  for (; seconds < 1000; ++seconds) {
    for (int turn = 0; turn < 200; ++turn) {
      world_.run(10000);
      at_.run_copies();
      settle();
      for (std::size_t i = 0; i < disks_.size(); ++i)
        round(i);
      if (tier_->quiet() && at_.copier.queued() == 0) break;
    }
    for (auto left = queries_open_.size(); left > 0; --left)
      ask_again();
    // Those of one id take turns: each starts a fetch of its own.
    const bool late = std::any_of(queries_open_.begin(), queries_open_.end(), [&](const auto& of) {
      return seconds >= loading_seconds_max && !used_twice_.contains(of.request.req_id());
    });
    CHECK_MESSAGE(!late, "Loading does not end");
    if (late) break;
    if (saves_.empty() && loads_.empty() && queries_open_.empty() && tier_->quiet()) break;
    advance(1s);
  }
  world_.run(10000);
  CHECK(saves_.empty());
  CHECK(loads_.empty());
  CHECK(queries_open_.empty());
  CHECK(unregistered_ == unregisters_);
  CHECK(tier_->quiet());
  check_usage();
}

// Once nothing fails any more the tier is on again, and writes.
void ssd_server::check_back_on() {
  for (auto waited = 0s; waited < back_on_within && !tier_->status().on; waited += 1s) {
    advance(1s);
    world_.run(10000);
  }
  CHECK(tier_->status().on);
  CHECK(numbers_.up.value() == 1);
  CHECK(tier_->status().why_off.empty());
  if (numbers_.switched_off.value() > 0) ++seen_.came_back;
  advance(400s);  // blocks that another rank never completed go
  world_.run(10000);
  start(0);
  const int probe = hash_count + (story_.lives - 1) % probe_count;
  save(0, probe, 1);
  drain(true);
  const bool found = std::any_of(disks_.begin(), disks_.end(), [&](const disk_side& side) {
    return std::find(side.stored.begin(), side.stored.end(), name_of(0, probe)) !=
           side.stored.end();
  });
  CHECK(found);
  die(0);
  drain(true);
}

void ssd_server::check_quiet() {
  const auto report = tier_->status();
  CHECK(report.fetches == 0);
  CHECK(report.fetch_blocks == 0);
  CHECK(numbers_.write_queue.value() == 0);
  CHECK(numbers_.writes_inflight.value() == 0);
  CHECK(numbers_.reads_inflight.value() == 0);
  CHECK(numbers_.thread_failures.value() == 0);
  CHECK(at_.metrics.leases.value() == 0);
  CHECK(at_.metrics.pinned_bytes.value() == 0);
  CHECK(control_.instances.value() == 0);
  CHECK(control_.task_failures.value() == 0);
  CHECK(at_.instances.all().empty());
  CHECK(at_.store->check() == "");
  advance(400s);  // blocks that another rank never completed go
  world_.run(10000);
  CHECK(at_.metrics.inflight_bytes.value() == 0);
  const auto live = [this] {
    std::uint64_t slots = 0;
    for (const auto& each : at_.pool->snapshot().classes)
      slots += each.slots_live;
    return slots;
  };
  const auto resident = static_cast<std::uint64_t>(at_.metrics.resident_blocks.value());
  CHECK(live() == resident * ranks);
  at_.store->drop_resident();
  CHECK(live() == 0);
  CHECK(at_.pool->used_bytes() == 0);
  CHECK(at_.store->check() == "");
}

void ssd_server::end(ending how) {
  seen_.endings[static_cast<std::size_t>(how)] += 1;
  if (how == ending::kill || how == ending::power_loss) {
    promise(how);
    for (std::size_t i = 0; i < disks_.size(); ++i) {
      auto& file = *disks_[i].file;
      story_.disks[i].bytes = how == ending::kill ? file.after_kill(story_.random)
                                                  : file.after_power_loss(story_.random);
      file.crash();
    }
  }
  drain(how == ending::stop);
  for (int who = 0; who < engine_count; ++who)
    die(who);
  drain(how == ending::stop);
  if (how == ending::stop) check_back_on();
  check_quiet();
  seen_.switched_off += numbers_.switched_off.value();
  seen_.corrupt += numbers_.corrupt.value();
  seen_.fetches_idle += numbers_.fetches_idle.value();
  for (const auto& side : disks_)
    seen_.reclaimed += side.log->usage().segments_reclaimed;
  if (how == ending::stop || how == ending::sick_stop) promise(how);
  take_down();
  for (std::size_t i = 0; i < disks_.size(); ++i) {
    auto& file = *disks_[i].file;
    // What was closed in good order survives a power loss at every level.
    const bool power = how == ending::stop && below(2) == 0;
    if (how == ending::stop || how == ending::sick_stop) {
      story_.disks[i].bytes = power ? file.after_power_loss(story_.random) : file.contents();
    }
    inspect(how, i);
  }
}

// What fsck says of a disk that never failed.
void ssd_server::inspect(ending how, std::size_t index) {
  if (story_.rotten || disks_[index].writes_failed) return;
  memory_file copy(story_.disks[index].bytes, story_.alignment);
  const auto found = fsck(copy, false);
  CHECK(found.valid);
  if (!found.sound()) ++seen_.unsound;
  if (how == ending::kill || how == ending::power_loss) return;
  CHECK(found.clean);
  CHECK(found.segments_scanned == 0);
  if (disks_[index].stored.size() > story_.disks[index].promised.size()) return;  // doubtful ones
  CHECK(found.sound());
  CHECK(found.records == story_.disks[index].promised.size());
}

}  // namespace kvd::sim
