#include "tests/sim/fleet_world.hpp"

#include <cstring>

#include <caf/send.hpp>
#include <fmt/format.h>

namespace kvd::sim {

namespace {

using std::chrono::milliseconds;

class sim_actors : public caf::actor_system_config {
public:
  sim_actors() { add_message_types<caf::id_block::kvd>(); }
};

void fill(std::byte* at, std::uint64_t bytes, std::string_view hash) {
  seeded_random content(std::hash<std::string_view>{}(hash));
  content.fill(std::span(at, bytes));
}

std::vector<const std::string*> pointers_to(const std::vector<std::string>& hashes) {
  std::vector<const std::string*> out;
  for (const auto& each : hashes)
    out.push_back(&each);
  return out;
}

// A node's way to one metaserver.
class sim_link final : public directory_link {
public:
  sim_link(fleet_world& world, std::size_t meta, std::string node, std::string node_id)
      : world_(world), meta_(meta), node_(std::move(node)), node_id_(std::move(node_id)),
        address_(world.metas[meta].name) {}
  ~sim_link() override { *gone_ = true; }

  const std::string& address() const noexcept override { return address_; }
  void describe(directory_done<directory_facts> done) override {
    call<directory_facts>(std::move(done), [](directory_store& at) -> result<directory_facts> {
      return directory_facts{at.id(), std::chrono::seconds(6)};
    });
  }
  void heartbeat(directory_done<std::chrono::seconds> done) override {
    call<std::chrono::seconds>(std::move(done),
                               [this](directory_store& at) -> result<std::chrono::seconds> {
                                 if (auto taken = at.heartbeat(self()); !taken)
                                   return tl::unexpected(taken.error());
                                 return std::chrono::seconds(6);
                               });
  }
  void farewell(directory_done<void> done) override {
    call<void>(std::move(done), [this](directory_store& at) -> result<void> {
      if (auto taken = at.unregister(self()); !taken) return tl::unexpected(taken.error());
      return {};
    });
  }
  void insert(named_blocks blocks, directory_done<std::vector<std::string>> done) override {
    call<std::vector<std::string>>(std::move(done),
                                   [this, blocks = std::move(blocks)](
                                       directory_store& at) -> result<std::vector<std::string>> {
                                     const auto names = pointers_to(blocks.hashes);
                                     const auto taken = at.insert(self(), blocks.name, names);
                                     if (!taken) return tl::unexpected(taken.error());
                                     std::vector<std::string> hints;
                                     for (const auto position : taken->reclaimable)
                                       hints.push_back(blocks.hashes[position]);
                                     return hints;
                                   });
  }
  void remove(named_blocks blocks, directory_done<void> done) override {
    call<void>(std::move(done),
               [this, blocks = std::move(blocks)](directory_store& at) -> result<void> {
                 const auto names = pointers_to(blocks.hashes);
                 const auto taken = at.remove(self(), blocks.name, names);
                 if (!taken) return tl::unexpected(taken.error());
                 return {};
               });
  }
  void compare(std::span<const std::uint64_t> digests,
               directory_done<std::vector<std::uint32_t>> done) override {
    call<std::vector<std::uint32_t>>(std::move(done),
                                     [this, mine = std::vector(digests.begin(), digests.end())](
                                         directory_store& at) { return at.compare(self(), mine); });
  }
  void replace(std::vector<std::uint32_t> buckets, std::vector<named_blocks> blocks,
               directory_done<void> done) override {
    call<void>(std::move(done),
               [this, buckets = std::move(buckets),
                blocks = std::move(blocks)](directory_store& at) -> result<void> {
                 std::vector<std::vector<const std::string*>> names;
                 std::vector<namespace_blocks> spans;
                 for (const auto& each : blocks) {
                   names.push_back(pointers_to(each.hashes));
                   spans.push_back({each.name, names.back()});
                 }
                 const auto taken = at.replace(self(), buckets, spans);
                 if (!taken) return tl::unexpected(taken.error());
                 return {};
               });
  }
  void locate(named_blocks blocks, bool over_gaps, duration,
              directory_done<located_blocks> done) override {
    call<located_blocks>(
        std::move(done), [this, blocks = std::move(blocks), over_gaps](directory_store& at) {
          return at.locate(blocks.name, pointers_to(blocks.hashes), node_, over_gaps);
        });
  }

private:
  node_session self() const { return {node_, node_id_}; }

  // There and back, each over the network.
  template<class T, class Call>
  void call(directory_done<T> done, Call body) {
    const auto lost = [gone = gone_, done] {
      if (!*gone) done(fail(errc::cancelled, "deadline"));
    };
    auto& network = world_.network;
    const auto life = world_.metas[meta_].known;
    network.send(
        node_, address_,
        [this, gone = gone_, life, body, done, lost] {
          if (*gone) return;
          auto& meta = world_.metas[meta_];
          if (!meta.known || meta.known != life) return lost();
          auto answer = body(*meta.known);
          world_.network.send(
              address_, node_,
              [gone, done, answer = std::move(answer)] {
                if (!*gone) done(answer);
              },
              lost);
        },
        lost);
  }

  fleet_world& world_;
  const std::size_t meta_;
  const std::string node_;
  const std::string node_id_;
  const std::string address_;
  std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);
};

// A node's way to another node.
class sim_calls final : public peer_calls {
public:
  sim_calls(fleet_world& world, std::string from, std::string to)
      : world_(world), from_(std::move(from)), to_(std::move(to)) {}
  ~sim_calls() override { *gone_ = true; }

  void hello(done<peer_hello> answer) override {
    call<peer_hello>(std::move(answer), [](fleet_node& at) -> result<peer_hello> {
      return peer_hello{at.boot_id, at.alive->port->address()};
    });
  }
  void lock(peer_lock_request what, duration, done<peer_lock> answer) override {
    call<peer_lock>(std::move(answer), [what](fleet_node& at) -> result<peer_lock> {
      if (what.boot_id != at.boot_id) return fail(errc::instance_missing, "another run");
      auto& life = *at.alive;
      peer_lock out;
      out.timeout = life.locks->timeout();
      const auto in = life.store->find_scope(what.name_space, what.group, what.fingerprint);
      if (!in) return out;
      auto open = life.locks->lock(*in, pointers_to(what.hashes));
      if (!open) return tl::unexpected(open.error());
      out.session = open->id;
      out.positions = open->positions;
      for (const auto block : open->blocks)
        for (std::uint32_t part = 0; part < life.store->scope_of(*in).parts.size(); ++part)
          out.units.push_back(life.store->part_unit(block, part));
      return out;
    });
  }
  void unlock(const std::string& session) override {
    call<bool>([](const result<bool>&) {},
               [session](fleet_node& at) -> result<bool> {
                 at.alive->locks->unlock(session);
                 return true;
               });
  }

private:
  template<class T, class Call>
  void call(done<T> answer, Call body) {
    const auto lost = [gone = gone_, answer] {
      if (!*gone) answer(fail(errc::cancelled, "deadline"));
    };
    // An unlock goes out although the one who sent it ends.
    world_.network.send(
        from_, to_,
        [this, gone = gone_, &world = world_, from = from_, to = to_, body, answer, lost] {
          auto* const at = world.node(to);
          if (at == nullptr || !at->alive) return lost();
          auto said = body(*at);
          world.network.send(
              to, from,
              [gone, answer, said = std::move(said)] {
                if (!*gone) answer(said);
              },
              lost);
        },
        lost);
  }

  fleet_world& world_;
  const std::string from_;
  const std::string to_;
  std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);
};

}  // namespace

// -- network -------------------------------------------------------------------------------------

void fleet_network::cut(const std::string& a, const std::string& b, bool off) {
  for (const auto& pair : {std::pair(a, b), std::pair(b, a)}) {
    if (off) {
      cuts_.insert(pair);
    } else {
      cuts_.erase(pair);
    }
  }
}

bool fleet_network::is_cut(const std::string& a, const std::string& b) const {
  return cuts_.count({a, b}) > 0;
}

void fleet_network::send(const std::string& from, const std::string& to,
                         std::function<void()> deliver, std::function<void()> lost) {
  const auto now = world_.time().now();
  const auto takes = milliseconds(world_.random().below(world_.random().below(8) == 0 ? 900 : 4));
  due_.emplace(now + takes,
               [this, from, to, deliver = std::move(deliver), lost = std::move(lost)]() mutable {
                 if (!is_cut(from, to)) return deliver();
                 due_.emplace(world_.time().now() + std::chrono::seconds(2), std::move(lost));
               });
}

std::size_t fleet_network::step() {
  std::size_t count = 0;
  while (!due_.empty() && due_.begin()->first <= world_.time().now()) {
    auto next = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    next();
    ++count;
  }
  return count;
}

// -- world ---------------------------------------------------------------------------------------

fleet_world::fleet_world(std::uint64_t seed, int meta_count, int node_count)
    : config(sim_actors()), system(seed, config), network(system), bytes(system.time()) {
  for (int i = 0; i < meta_count; ++i) {
    metas.push_back({fmt::format("meta{}:1", i), 0, nullptr});
    start_meta(metas.back());
  }
  for (int i = 0; i < node_count; ++i)
    nodes.push_back(std::make_unique<fleet_node>(*this, fmt::format("node{}:1", i)));
}

fleet_world::~fleet_world() {
  nodes.clear();
}

void fleet_world::start_meta(fleet_meta& which) {
  which.known = std::make_shared<directory_store>(
      directory_store::options{.owners_max = 100'000,
                               .stale_after = std::chrono::seconds(6),
                               .ttl = std::chrono::minutes(10),
                               .seed = 5,
                               .id = fmt::format("{} life {}", which.name, ++which.life)},
      system.time());
}

fleet_node* fleet_world::node(const std::string& name) {
  for (auto& each : nodes)
    if (each->name == name) return each.get();
  return nullptr;
}

void fleet_world::pass(duration by) {
  constexpr milliseconds leap{20};
  for (duration passed{}; passed < by; passed += leap) {
    bool more = true;
    while (more) {
      more = network.step() > 0;
      more = bytes.step() > 0 || more;
      more = system.step() || more;
    }
    for (auto& each : nodes) {
      if (!each->alive) continue;
      if (!each->alive->feed.empty()) each->alive->directories->drain();
    }
    for (auto& each : metas)
      if (each.known) each.known->upkeep();
    system.advance(leap);
  }
}

// -- node ----------------------------------------------------------------------------------------

fleet_node::life::life(fleet_node& of, fleet_world& in) {
  const pool_region region{0, memory.get(), pool_bytes};
  pool = *slab_pool::create(
      {.regions = std::span(&region, 1), .hint_value_bytes = 0, .blockwise = false});
  pool->grow(0, pool_bytes);
  const clock& time = in.system.time();
  store = std::make_unique<block_store>(
      block_store::options{.records_max = static_cast<std::uint32_t>(pool_bytes / 512),
                           .hash_seed = 7,
                           .fetch_reserve = 100},
      *pool, *make_eviction_policy("lru"), time, store_numbers);
  scope = *store->open_scope("ns", 0, test::simple_layout(part_bytes, 2, 1));
  store->tell(feed);
  locks = std::make_unique<transfer_locks>(*store, time, in.system.random(), sharing,
                                           std::chrono::seconds(20));
  offered.regions.push_back({memory.get(), pool_bytes, 0, -1, 0});
  port = std::make_unique<loopback_peer>(in.bytes, of.boot_id, offered, peers);
  const auto node_id =
      fmt::format("{:08x}-0000-4000-8000-{:012x}", in.system.random().below(1 << 30),
                  in.system.random().next() >> 16);
  std::vector<std::unique_ptr<directory_link>> links;
  for (std::size_t i = 0; i < in.metas.size(); ++i)
    links.push_back(std::make_unique<sim_link>(in, i, of.name, node_id));
  directories = std::make_unique<announcer>(
      announcer_options{.queue_blocks_max = 64, .blocks_per_call = 32, .records_per_step = 64},
      std::move(links), *store, feed, time, sharing, [this](announcer::task task) {
        if (registrar) caf::anon_send(registrar, message::run{std::move(task)});
      });
  tier = std::make_unique<peer_tier>(
      peer_tier_options{},
      peer_tier::parts{.store = *store,
                       .directories = *directories,
                       .port = *port,
                       .connect =
                           [&of, &in](const std::string& to) {
                             return std::make_unique<sim_calls>(in, of.name, to);
                           },
                       .ssd = nullptr,
                       .time = time,
                       .metrics = sharing,
                       .post =
                           [this](peer_tier::task task) {
                             if (peer) caf::anon_send(peer, message::run{std::move(task)});
                           }});
  auto& actors = in.system.actors();
  registrar = actors.spawn(keep_announced, directories.get(), &control, &time);
  peer = actors.spawn(keep_peers, tier.get(), locks.get(), &control, &time);
  caf::anon_send(registrar, message::tick{});
}

fleet_node::life::~life() {
  directories->stop_asking();
  tier->stop_asking();
  port.reset();
  caf::anon_send_exit(registrar, caf::exit_reason::kill);
  caf::anon_send_exit(peer, caf::exit_reason::kill);
}

void fleet_node::start() {
  boot_id = fmt::format("{} run {}", name, ++lives);
  alive = std::make_unique<life>(*this, world);
}

void fleet_node::kill() {
  if (!alive) return;
  auto ended = std::move(alive);
  // Its actors drop what waits for them before what that points at ends.
  caf::anon_send_exit(ended->registrar, caf::exit_reason::kill);
  caf::anon_send_exit(ended->peer, caf::exit_reason::kill);
  while (world.system.step()) {
  }
}

void fleet_node::save(const test::hashes& which) {
  std::vector<std::uint32_t> positions = test::all_positions(which);
  auto claims = claim_whole(*alive->store, alive->scope, which.list(), positions);
  for (const auto& block : claims.claimed) {
    for (const auto& part : block.parts)
      fill(part.address, part_bytes, *which.list()[block.position]);
    commit_whole(*alive->store, alive->scope, block.parts);
    alive->store->unpin(std::span(&block.parts.front().block, 1));
  }
}

bool fleet_node::ask(const std::string& request, const test::hashes& which) {
  std::vector<block_index> pinned;
  alive->store->pin_prefix(alive->scope, which.list(), pinned);
  if (pinned.size() < which.list().size() &&
      alive->tier->fetch({1, request, 0}, alive->scope, which.list(), pinned, false)) {
    return true;
  }
  alive->store->unpin(pinned);
  return false;
}

bool fleet_node::over(const std::string& request) const {
  return alive->tier->poll({1, request, 0}) != lower_tier::progress::loading;
}

std::size_t fleet_node::take(const std::string& request, const test::hashes& which) {
  std::vector<block_index> pinned;
  const auto hits = alive->store->pin_prefix(alive->scope, which.list(), pinned);
  alive->tier->settle({1, request, 0});
  std::vector<std::byte> expected(part_bytes);
  for (std::size_t i = 0; i < hits; ++i) {
    fill(expected.data(), part_bytes, *which.list()[i]);
    for (std::uint32_t part = 0; part < 2; ++part) {
      REQUIRE(std::memcmp(alive->store->part_address(pinned[i], part), expected.data(),
                          part_bytes) == 0);
    }
  }
  alive->store->unpin(pinned);
  return hits;
}

std::set<std::string> fleet_node::holds() const {
  std::set<std::string> all;
  alive->store->for_each_sealed(0, 1 << 20,
                                [&](scope_id, std::string_view hash) { all.emplace(hash); });
  return all;
}

}  // namespace kvd::sim
