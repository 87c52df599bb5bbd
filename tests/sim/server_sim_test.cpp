// The whole server role but its sockets, under one seed: engines register, save, query, load, die
// and come back while copies end in any order, fail, and time passes in leaps.
//
// Whatever the seed does: every request is answered once, a load that says it succeeded brought
// exactly the bytes that were saved under those hashes, and when all engines are gone nothing is
// pinned, leased or in flight.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <caf/send.hpp>
#include <doctest/doctest.h>

#include "actors/cache.hpp"
#include "actors/engine.hpp"
#include "tests/sim/seeded_system.hpp"
#include "tests/transport/engine/plane_fixture.hpp"

using namespace kvd;
using namespace std::chrono_literals;
using kvd::test::client_flag;
using kvd::test::hashes;
using kvd::test::plane_fixture;
using kvd::test::save_answer;

namespace {

constexpr int layers = 2;
constexpr std::uint32_t blocks = 16;
constexpr std::uint64_t segment = 512;
constexpr int hash_count = 60;
constexpr int engine_count = 3;
constexpr int steps = 300;

// Messages as production registers them, run by the simulator's scheduler.
class sim_config : public caf::actor_system_config {
public:
  sim_config() { add_message_types<caf::id_block::kvd>(); }
};

std::byte byte_of(int hash, int layer, std::uint32_t rank) {
  return static_cast<std::byte>(hash * 7 + layer * 3 + static_cast<int>(rank) + 1);
}

class server_world {
public:
  explicit server_world(std::uint64_t seed)
      : at_(48 << 10), world_(seed, config_),
        registry_(at_.instances, *at_.store, *at_.leases, at_.opener, control_) {
    const kvd::clock* time = &at_.time;
    engine_ = world_.actors().spawn(engine, &registry_, &control_, time);
    cache_ = world_.actors().spawn(cache, cache_parts{.store = at_.store.get(),
                                                      .leases = at_.leases.get(),
                                                      .saves = &at_.saves,
                                                      .instances = &at_.instances,
                                                      .time = &at_.time,
                                                      .metrics = &control_});
    at_.store->on_pressure([this] { caf::anon_send(cache_, message::trim{}); });
  }

  void run() {
    for (int step = 0; step < steps; ++step)
      act();
    for (int who = 0; who < engine_count; ++who)
      die(who);
    drain();
    check_quiet();
    caf::anon_send(engine_, message::stop{});
    caf::anon_send(cache_, message::stop{});
    at_.store->on_pressure({});
    engine_ = nullptr;
    cache_ = nullptr;
    world_.run(1000);
  }

private:
  // One engine of two tensor-parallel ranks; its memory lives as long as it is registered.
  struct engine_side {
    bool registered = false;
    std::uint64_t token = 0;
    std::vector<std::vector<std::shared_ptr<test::heap_memory>>> tensors;  // by rank, layer
  };
  struct pending_save {
    pegaflow::SaveRequest request;
    save_answer answer;
  };
  struct pending_load {
    client_flag flag;
    int who;
    std::uint32_t rank;
    std::uint64_t token;
    std::uint32_t first_block;
    std::vector<int> expected;
  };

  std::uint64_t below(std::uint64_t bound) { return world_.random().below(bound); }
  std::string name_of(int who) { return "engine-" + std::to_string(who); }

  void act() {
    const auto who = static_cast<int>(below(engine_count));
    switch (below(10)) {
    case 0: start(who); break;
    case 1: save(who); break;
    case 2: save(who); break;
    case 3: load(who); break;
    case 4: copy_one(); break;
    case 5: copy_one(); break;
    case 6: world_.step(); break;
    case 7: world_.run(10000); break;
    case 8: leap(); break;
    case 9:
      if (below(6) == 0) die(who);
      break;
    }
    settle();
  }

  void leap() {
    const duration by = below(20) == 0 ? duration(320s) : duration(std::chrono::seconds(below(3)));
    at_.time.advance(by);
    world_.advance(by);
  }

  void copy_one() {
    if (at_.copier.queued() == 0) return;
    if (below(10) == 0) at_.copier.script(below(2) == 0 ? copy_script::fail : copy_script::cancel);
    at_.copier.run(below(at_.copier.queued()));
  }

  void start(int who) {
    auto& mine = engines_[who];
    if (mine.registered) return;
    mine.token = ++tokens_;
    mine.tensors.clear();
    caf::anon_send(engine_, message::session_opened{name_of(who), mine.token});
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      register_rank(who, rank);
    mine.registered = true;
  }

  void register_rank(int who, std::uint32_t rank) {
    pegaflow::RegisterContextRequest request;
    request.set_instance_id(name_of(who));
    request.set_namespace_("model");
    request.set_device_id(static_cast<std::int32_t>(rank));
    request.set_tp_rank(rank);
    request.set_tp_size(2);
    request.set_world_size(2);
    for (int layer = 0; layer < layers; ++layer) {
      request.add_layer_names("layer." + std::to_string(layer));
      request.add_wrapper_bytes(std::to_string(2 * segment * blocks));
      request.add_num_blocks(blocks);
      request.add_bytes_per_block(segment);
      request.add_kv_stride_bytes(segment * blocks);
      request.add_segments(2);
    }
    bool answered = false;
    const auto opened = at_.opener.opened.size();
    caf::anon_send(engine_, message::register_worker{&request, reply<void>([&](result<void> how) {
                                                       answered = true;
                                                       CHECK(how);
                                                     })});
    world_.run(10000);
    REQUIRE(answered);
    auto& tensors = engines_[who].tensors.emplace_back();
    for (auto i = opened; i < at_.opener.opened.size(); ++i) {
      tensors.push_back(at_.opener.opened[i]);
    }
  }

  // Either the session breaks, or the engine says goodbye.
  void die(int who) {
    auto& mine = engines_[who];
    if (!mine.registered) return;
    mine.registered = false;
    if (below(2) == 0) {
      caf::anon_send(engine_, message::session_closed{name_of(who), mine.token});
      return;
    }
    ++unregisters_;
    caf::anon_send(engine_, message::unregister{name_of(who), reply<void>([this](result<void>) {
                                                  ++unregistered_;
                                                })});
  }

  void save(int who) {
    auto& mine = engines_[who];
    const auto of = at_.instances.find(name_of(who));
    if (!mine.registered || !of || saving_[who] > 0) return;
    const auto first = static_cast<int>(below(hash_count - 6));
    const auto count = static_cast<std::uint32_t>(1 + below(6));
    std::vector<std::uint32_t> ids;
    for (std::uint32_t i = 0; i < count; ++i)
      ids.push_back(i);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      for (int layer = 0; layer < layers; ++layer) {
        auto& tensor = *mine.tensors[rank][static_cast<std::size_t>(layer)];
        for (std::uint32_t i = 0; i < count; ++i) {
          const auto value = static_cast<int>(byte_of(first + static_cast<int>(i), layer, rank));
          std::memset(tensor.data() + i * segment, value, segment);
          std::memset(tensor.data() + (blocks + i) * segment, value, segment);
        }
      }
      auto running = operation::begin(of);
      if (!running) return;
      auto pending = std::make_unique<pending_save>();
      pending->request = plane_fixture::save_request(name_of(who), static_cast<int>(rank), rank,
                                                     layers, first, ids);
      ++saving_[who];
      owners_[pending.get()] = who;
      auto& fresh = *saves_.emplace_back(std::move(pending));
      at_.saves.start(std::move(*running), fresh.request, fresh.answer);
    }
  }

  void load(int who) {
    auto& mine = engines_[who];
    const auto of = at_.instances.find(name_of(who));
    if (!mine.registered || !of || !of->sealed) return;
    const auto first = static_cast<int>(below(hash_count - 6));
    const auto ready = at_.query(name_of(who), first, 4);
    CHECK(at_.query_outcome);
    if (ready.num_hit_blocks() == 0 || below(5) == 0) return;  // sometimes a lease is forgotten
    const auto hits = static_cast<std::uint32_t>(ready.num_hit_blocks());
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto running = operation::begin(of);
      if (!running) return;
      auto pending = std::make_unique<pending_load>();
      pending->who = who;
      pending->rank = rank;
      pending->token = mine.token;
      pending->first_block = 8;
      std::vector<std::uint32_t> targets;
      for (std::uint32_t i = 0; i < hits; ++i) {
        targets.push_back(8 + i);
        pending->expected.push_back(first + static_cast<int>(i));
      }
      const auto request = plane_fixture::load_request(name_of(who), static_cast<int>(rank), layers,
                                                       ready.lease(), targets);
      const auto started =
          at_.loads.start(std::move(*running), request, *load_state::attach(pending->flag.name()));
      if (started) loads_.push_back(std::move(pending));
      // One load at a time uses blocks 8.., so that its bytes can be compared.
      finish_loads();
    }
  }

  void finish_loads() {
    while (!loads_.empty()) {
      while (at_.copier.queued() > 0 && loads_.front()->flag.state() == 0)
        copy_one();
      settle();
    }
  }

  // Looks at what has ended since.
  void settle() {
    std::erase_if(saves_, [this](const auto& each) {
      if (!each->answer.outcome) return false;
      --saving_[owners_[each.get()]];
      owners_.erase(each.get());
      return true;
    });
    std::erase_if(loads_, [this](const auto& each) {
      if (each->flag.state() == 0) return false;
      if (each->flag.state() == 1) compare(*each);
      return true;
    });
  }

  void compare(const pending_load& done) {
    const auto& mine = engines_[done.who];
    if (!mine.registered || mine.token != done.token) return;
    for (int layer = 0; layer < layers; ++layer) {
      const auto& tensor = *mine.tensors[done.rank][static_cast<std::size_t>(layer)];
      for (std::size_t i = 0; i < done.expected.size(); ++i) {
        const auto wanted = byte_of(done.expected[i], layer, done.rank);
        const auto* k = tensor.data() + (done.first_block + i) * segment;
        const auto* v = k + blocks * segment;
        REQUIRE(k[0] == wanted);
        REQUIRE(k[segment - 1] == wanted);
        REQUIRE(v[segment / 2] == wanted);
      }
    }
    ++compared;
  }

  // Everything that runs comes to its end.
  void drain() {
    for (int round = 0; round < 1000; ++round) {
      world_.run(10000);
      at_.run_copies();
      settle();
      if (saves_.empty() && loads_.empty() && at_.copier.queued() == 0) break;
      at_.time.advance(1s);
      world_.advance(1s);
    }
    world_.run(10000);
    CHECK(saves_.empty());
    CHECK(loads_.empty());
    CHECK(unregistered_ == unregisters_);
  }

  void check_quiet() {
    CHECK(at_.metrics.leases.value() == 0);
    CHECK(at_.metrics.pinned_bytes.value() == 0);
    CHECK(control_.instances.value() == 0);
    CHECK(control_.task_failures.value() == 0);
    CHECK(at_.instances.all().empty());
    CHECK(at_.store->check() == "");
    at_.time.advance(400s);
    world_.advance(400s);
    world_.run(10000);
    CHECK(at_.metrics.inflight_bytes.value() == 0);
    CHECK(at_.store->check() == "");
  }

  sim_config config_;
  control_metrics control_;
  plane_fixture at_;
  sim::seeded_system world_;
  instance_registry registry_;
  engine_actor engine_;
  cache_actor cache_;
  std::map<int, engine_side> engines_;
  std::map<int, int> saving_;
  std::map<const pending_save*, int> owners_;
  std::vector<std::unique_ptr<pending_save>> saves_;
  std::vector<std::unique_ptr<pending_load>> loads_;
  std::uint64_t tokens_ = 0;
  int unregisters_ = 0;
  int unregistered_ = 0;

public:
  int compared = 0;
};

}  // namespace

TEST_CASE("any order of copies, deaths and leaps in time leaves a right and quiet server") {
  int compared = 0;
  sim::for_each_seed(60, [&](std::uint64_t seed) {
    server_world world(seed);
    world.run();
    compared += world.compared;
  });
  // A scenario that never loads anything proves nothing.
  CHECK(compared > 0);
}
