#pragma once
// One life of a server with an SSD tier and of the engines that use it, under a seed: from its
// start on what the disks hold to its stop, its kill, or the end of the power.
//
// Production code but for sockets, copy threads and disks. Each act of run() is chosen by the seed:
// an engine registers, saves, asks, asks again, loads or dies; one copy, one message, one round of
// the tier is carried out; time leaps; a disk stalls, fails, or changes a byte.
//
// Owner: one test, one thread.

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/cache.hpp"
#include "actors/engine.hpp"
#include "actors/ssd.hpp"
#include "tests/sim/seeded_system.hpp"
#include "tests/sim/ssd_story.hpp"
#include "tests/transport/engine/plane_fixture.hpp"

namespace kvd::sim {

// Messages as production registers them, run by the simulator's scheduler.
class server_config : public caf::actor_system_config {
public:
  server_config() { add_message_types<caf::id_block::kvd>(); }
};

// The tier's hold on a disk that outlives it.
class borrowed_file final : public block_file {
public:
  explicit borrowed_file(memory_file& of) : of_(of) {}
  void submit(file_io& io) noexcept override { of_.submit(io); }
  std::size_t poll(std::chrono::milliseconds wait) noexcept override { return of_.poll(wait); }
  void wake() noexcept override {}
  std::uint64_t bytes() const noexcept override { return of_.bytes(); }
  std::uint32_t alignment() const noexcept override { return of_.alignment(); }
  std::string_view backend() const noexcept override { return of_.backend(); }

private:
  memory_file& of_;
};

class ssd_server {
public:
  // Both outlive it. Opens the disks, and checks what they owe.
  ssd_server(ssd_story& story, tally& seen);
  ~ssd_server();
  ssd_server(const ssd_server&) = delete;
  ssd_server& operator=(const ssd_server&) = delete;

  void run(int acts);
  // Ends it, and leaves disks and promises in the story. Everything that was asked is answered.
  void end(ending how);

private:
  struct disk_side {
    std::unique_ptr<memory_file> file;
    const segment_log* log = nullptr;  // the tier's
    std::vector<int> stored;           // names, by the time they were seen to be stored
    // In the index since the start, but not promised: a list that came to the disk before its
    // records did, at a level that allows it.
    std::array<bool, name_count> doubtful{};
    bool writes_failed = false;  // in this life, perhaps
  };
  // Two tensor-parallel ranks. Its memory lives as long as somebody loads into it.
  using tensor = std::shared_ptr<test::heap_memory>;
  struct engine_side {
    bool registered = false;
    std::uint64_t token = 0;
    std::vector<std::vector<tensor>> tensors;  // by rank, layer
    std::vector<bool> slots;                   // of blocks that a load fills: taken
    int saving = 0;
  };
  struct pending_save {
    int who;
    std::uint64_t token;
    pegaflow::SaveRequest request;
    test::save_answer answer;
  };
  struct pending_query {
    int who;
    std::uint64_t token;
    pegaflow::QueryRequest request;
    int first;
  };
  struct pending_load {
    test::client_flag flag;
    int who;
    std::uint32_t rank;
    std::uint64_t token;
    std::size_t slot;
    std::vector<tensor> tensors;
    std::vector<int> names;
  };

  // ssd_server.cpp: the server
  void open_disk(std::size_t index);
  void check_promises(std::size_t index, segment_log& log);
  void spawn();
  void take_down();
  void round(std::size_t disk);
  void see_stored(disk_side& side);
  void check_usage();
  void advance(duration by);
  void trouble();
  void heal(disk_side& side);
  void drain(bool healthy);
  void check_back_on();
  void check_quiet();
  void promise(ending how);
  void inspect(ending how, std::size_t index);

  // ssd_engines.cpp: the engines
  void act();
  void start(int who);
  void register_rank(int who, std::uint32_t rank);
  void die(int who);
  void save(int who, int first, std::uint32_t count);
  void ask_new(int who);
  bool ask(const pending_query& of);
  void ask_again();
  void load(const pending_query& of, const pegaflow::QueryReady& ready);
  void copy_one();
  void leap();
  void settle();
  void compare(const pending_load& done);

  std::uint64_t below(std::uint64_t bound) { return story_.random.below(bound); }
  static std::string name(int who) { return "engine-" + std::to_string(who); }

  static constexpr int engine_count = 3;

  ssd_story& story_;
  tally& seen_;
  server_config config_;
  control_metrics control_;
  ssd_metrics numbers_;
  test::plane_fixture at_;
  std::vector<disk_side> disks_;
  ssd_tier_options options_;
  std::unique_ptr<ssd_tier> tier_;
  std::unique_ptr<query_path> queries_;
  seeded_system world_;
  instance_registry registry_;
  engine_actor engine_;
  cache_actor cache_;
  ssd_actor ssd_;

  std::map<int, engine_side> engines_;
  std::vector<std::unique_ptr<pending_save>> saves_;
  std::deque<pending_query> queries_open_;
  std::vector<std::unique_ptr<pending_load>> loads_;
  std::uint64_t tokens_ = 0;
  std::uint64_t requests_ = 0;
  std::set<std::string> used_twice_;  // request ids
  int unregisters_ = 0;
  int unregistered_ = 0;
};

}  // namespace kvd::sim
