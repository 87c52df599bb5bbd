#pragma once
// Nodes that share blocks inside one test: real stores and locks, scripted links, one clock, and
// tasks that run when the test says so.

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/peer_tier.hpp"
#include "memory/transfer_locks.hpp"
#include "tests/memory/store_fixture.hpp"
#include "tests/transport/directory/fake_directory.hpp"
#include "transport/peer/loopback_peer.hpp"

namespace kvd::test {

// Bytes that only that part of that block has.
inline void fill_part(std::byte* at, std::uint64_t bytes, std::string_view hash,
                      std::uint32_t part) {
  seeded_random content(std::hash<std::string_view>{}(hash) + part);
  content.fill(std::span(at, bytes));
}
inline bool is_part(const std::byte* at, std::uint64_t bytes, std::string_view hash,
                    std::uint32_t part) {
  std::vector<std::byte> expected(bytes);
  fill_part(expected.data(), bytes, hash, part);
  return std::memcmp(at, expected.data(), bytes) == 0;
}

struct shared_world {
  fake_clock time;
  seeded_random random{11};
  std::deque<std::function<void()>> tasks;
  loopback_network network{time};
  fake_directory directory;

  // Runs everything that is due without time passing.
  void run() {
    bool more = true;
    while (more) {
      more = network.step() > 0;
      while (!tasks.empty()) {
        auto next = std::move(tasks.front());
        tasks.pop_front();
        next();
        more = true;
      }
    }
  }
};

// A node that holds blocks.
struct holder_node {
  holder_node(shared_world& in, std::string named, std::size_t pool_bytes = 1 << 20)
      : world(in), name(std::move(named)), boot_id(name + " run 1"), at(pool_bytes),
        locks(*at.store, in.time, in.random, sharing, std::chrono::seconds(120)) {
    pool.regions.push_back({at.memory.get(), pool_bytes, 0, -1, 0});
    start();
  }
  void start() { port = std::make_unique<loopback_peer>(world.network, boot_id, pool, metrics); }
  void restart() {
    port.reset();
    at.store->drop_resident();
    boot_id += "'";
    start();
  }
  void save(scope_id in, const hashes& which) {
    const auto& parts = at.store->scope_of(in).parts;
    for (std::uint32_t part = 0; part < parts.size(); ++part) {
      auto claims = at.claim(in, part, which);
      for (const auto& claim : claims)
        fill_part(claim.address, parts[part].bytes, *which.list()[claim.position], part);
      const std::uint32_t cells[] = {0};
      at.store->commit(claims, cells);
    }
  }
  // As a metaserver would know it, under this node's name.
  bool holds(scope_id in, const std::string& hash) {
    const std::string* one[] = {&hash};
    std::vector<block_index> pinned;
    std::vector<std::uint32_t> where;
    at.store->pin_members(in, one, pinned, where);
    at.store->unpin(pinned);
    return !pinned.empty();
  }

  shared_world& world;
  std::string name;
  std::string boot_id;
  store_fixture at;
  sharing_metrics sharing;
  transfer_locks locks;
  peer_pool pool;
  peer_metrics metrics;
  std::unique_ptr<loopback_peer> port;
  bool reachable = true;
};

// Who holds what, straight from the holders' stores.
class truthful_link final : public directory_link {
public:
  truthful_link(shared_world& in, std::vector<holder_node*>& holders)
      : world_(in), holders_(holders) {}
  const std::string& address() const noexcept override { return address_; }
  void describe(directory_done<directory_facts> done) override {
    world_.tasks.push_back([done] { done(directory_facts{"one", std::chrono::seconds(30)}); });
  }
  void heartbeat(directory_done<std::chrono::seconds> done) override {
    world_.tasks.push_back([this, done] {
      if (reachable) return done(std::chrono::seconds(30));
      done(fail(errc::unavailable, "no metaserver"));
    });
  }
  void farewell(directory_done<void> done) override {
    world_.tasks.push_back([done] { done({}); });
  }
  void insert(named_blocks, directory_done<std::vector<std::string>> done) override {
    world_.tasks.push_back([done] { done(std::vector<std::string>{}); });
  }
  void remove(named_blocks, directory_done<void> done) override {
    world_.tasks.push_back([done] { done({}); });
  }
  void compare(std::span<const std::uint64_t>,
               directory_done<std::vector<std::uint32_t>> done) override {
    world_.tasks.push_back([done] { done(std::vector<std::uint32_t>{}); });
  }
  void replace(std::vector<std::uint32_t>, std::vector<named_blocks>,
               directory_done<void> done) override {
    world_.tasks.push_back([done] { done({}); });
  }
  void locate(named_blocks blocks, bool, duration, directory_done<located_blocks> done) override {
    world_.tasks.push_back([this, blocks = std::move(blocks), done] {
      if (!reachable) return done(fail(errc::unavailable, "no metaserver"));
      located_blocks found;
      for (const auto* each : holders_)
        found.nodes.push_back(each->name);
      for (std::uint32_t i = 0; i < blocks.hashes.size(); ++i) {
        located_run run{i, 1, {}};
        for (std::uint32_t owner = 0; owner < holders_.size(); ++owner) {
          auto& holder = *holders_[owner];
          const bool listed =
              stale || holder.holds(scope_of(holder, blocks.name), blocks.hashes[i]);
          if (listed) run.owners.push_back(owner);
        }
        if (!run.owners.empty()) found.runs.push_back(run);
      }
      done(std::move(found));
    });
  }
  static scope_id scope_of(holder_node& holder, const std::string& name) {
    for (scope_id id = 0;; ++id)
      if (directory_name_of(holder.at.store->scope_of(id)) == name) return id;
  }
  bool reachable = true;
  bool stale = false;  // says that everybody has everything

private:
  shared_world& world_;
  std::vector<holder_node*>& holders_;
  std::string address_ = "meta";
};

class direct_calls final : public peer_calls {
public:
  explicit direct_calls(holder_node& to) : to_(to) {}
  void hello(done<peer_hello> answer) override {
    later([this, answer] {
      if (!to_.reachable) return answer(fail(errc::unavailable, "connection refused"));
      answer(peer_hello{to_.boot_id, to_.port->address()});
    });
  }
  void lock(peer_lock_request what, duration, done<peer_lock> answer) override {
    later([this, what = std::move(what), answer] {
      if (!to_.reachable) return answer(fail(errc::cancelled, "deadline"));
      if (what.boot_id != to_.boot_id) return answer(fail(errc::instance_missing, "another run"));
      std::vector<const std::string*> names;
      for (const auto& hash : what.hashes)
        names.push_back(&hash);
      peer_lock out;
      out.timeout = to_.locks.timeout();
      const auto in = to_.at.store->find_scope(what.name_space, what.group, what.fingerprint);
      if (!in) return answer(out);
      auto open = *to_.locks.lock(*in, names);
      out.session = open.id;
      out.positions = open.positions;
      for (const auto block : open.blocks)
        for (std::uint32_t part = 0; part < to_.at.store->scope_of(*in).parts.size(); ++part)
          out.units.push_back(to_.at.store->part_unit(block, part));
      answer(std::move(out));
    });
  }
  void unlock(const std::string& session) override {
    later([this, session] { to_.locks.unlock(session); });
  }

private:
  void later(std::function<void()> what) { to_.world.tasks.push_back(std::move(what)); }
  holder_node& to_;
};

// A tier that has some blocks, and brings them when it is told to.
class fake_ssd final : public stored_tier {
public:
  explicit fake_ssd(store_fixture& at) : at_(at) {}
  bool holds(scope_id, std::string_view hash) const noexcept override {
    return stored.count(std::string(hash)) > 0;
  }
  progress poll(const query_id& id) noexcept override {
    const auto found = running_.find(std::string(id.request));
    if (found == running_.end()) return progress::none;
    return found->second.ready ? progress::over : progress::loading;
  }
  bool fetch(const query_id& id, scope_id in, hash_list asked, std::span<const block_index> pinned,
             bool) override {
    entry one;
    one.in = in;
    for (std::size_t i = pinned.size(); i < asked.size() && holds(in, *asked[i]); ++i)
      one.hashes.push_back(*asked[i]);
    if (one.hashes.empty()) return false;
    one.pins.assign(pinned.begin(), pinned.end());
    return running_.emplace(std::string(id.request), std::move(one)).second;
  }
  brought_up settle(const query_id& id) noexcept override {
    auto found = running_.extract(std::string(id.request));
    if (found.empty()) return {};
    at_.store->unpin(found.mapped().pins);
    return {.ssd = found.mapped().hashes.size(), .peers = 0};
  }
  void bring_all() {
    for (auto& [request, one] : running_) {
      for (const auto& hash : one.hashes) {
        const std::string* list[] = {&hash};
        const std::uint32_t position[] = {0};
        auto claims = claim_whole(*at_.store, one.in, list, position);
        for (const auto& block : claims.claimed) {
          for (std::uint32_t part = 0; part < block.parts.size(); ++part) {
            fill_part(block.parts[part].address, at_.store->scope_of(one.in).parts[part].bytes,
                      hash, part);
          }
          commit_whole(*at_.store, one.in, block.parts);
          one.pins.push_back(block.parts.front().block);
        }
      }
      one.ready = true;
    }
  }
  // As the SSD tier does with what is not asked for, or whose instance is gone.
  void give_up() {
    for (auto& [request, one] : running_)
      at_.store->unpin(one.pins);
    running_.clear();
  }
  std::set<std::string> stored;

private:
  struct entry {
    scope_id in = 0;
    std::vector<std::string> hashes;
    std::vector<block_index> pins;
    bool ready = false;
  };
  store_fixture& at_;
  std::map<std::string, entry> running_;
};

// The node that asks.
struct reader_node {
  explicit reader_node(shared_world& in, bool with_ssd = false, std::size_t pool_bytes = 1 << 20)
      : world(in), at(pool_bytes), ssd(at), feed(10'000, {}) {
    pool.regions.push_back({at.memory.get(), pool_bytes, 0, -1, 0});
    port = std::make_unique<loopback_peer>(world.network, "reader", pool, metrics);
    std::vector<std::unique_ptr<directory_link>> links;
    auto link = std::make_unique<truthful_link>(world, holders);
    directory = link.get();
    links.push_back(std::move(link));
    const auto post = [this](std::function<void()> task) {
      world.tasks.push_back(std::move(task));
    };
    directories = std::make_unique<announcer>(announcer_options{}, std::move(links), *at.store,
                                              feed, world.time, sharing, post);
    tier = std::make_unique<peer_tier>(peer_tier_options{},
                                       peer_tier::parts{.store = *at.store,
                                                        .directories = *directories,
                                                        .port = *port,
                                                        .connect =
                                                            [this](const std::string& node) {
                                                              return std::make_unique<direct_calls>(
                                                                  named(node));
                                                            },
                                                        .ssd = with_ssd ? &ssd : nullptr,
                                                        .time = world.time,
                                                        .metrics = sharing,
                                                        .post = post});
    directories->tick();
    world.run();
  }
  ~reader_node() {
    port.reset();
    world.run();
  }
  holder_node& named(const std::string& node) {
    for (auto* each : holders)
      if (each->name == node) return *each;
    std::abort();
  }
  void pass(duration by) {
    // In steps, so that what is due in between happens in order.
    for (int i = 0; i < 20; ++i) {
      world.time.advance(by / 20);
      tier->tick();
      world.run();
    }
  }
  query_id id(std::string_view request, std::uint64_t instance = 1) const {
    return {instance, request, 0};
  }
  bool fetch(std::string_view request, const hashes& which, bool whole = false) {
    std::vector<block_index> pinned;
    at.store->pin_prefix(in(), which.list(), pinned);
    const bool begun = tier->fetch(id(request), in(), which.list(), pinned, whole);
    if (!begun) at.store->unpin(pinned);
    world.run();
    return begun;
  }
  // Leading hits whose bytes are right; settles the query first, as the query path does.
  std::size_t finish(std::string_view request, const hashes& which) {
    std::vector<block_index> pinned;
    const auto found = at.store->pin_prefix(in(), which.list(), pinned);
    brought = tier->settle(id(request));
    const auto& parts = at.store->scope_of(in()).parts;
    for (std::size_t i = 0; i < found; ++i) {
      for (std::uint32_t part = 0; part < parts.size(); ++part) {
        CHECK(is_part(at.store->part_address(pinned[i], part), parts[part].bytes, *which.list()[i],
                      part));
      }
    }
    at.store->unpin(pinned);
    return found;
  }
  scope_id in() { return *at.store->open_scope("ns", 0, simple_layout(4096, 2, 1)); }

  shared_world& world;
  std::vector<holder_node*> holders;
  store_fixture at;
  fake_ssd ssd;
  residency_feed feed;
  sharing_metrics sharing;
  peer_pool pool;
  peer_metrics metrics;
  std::unique_ptr<loopback_peer> port;
  truthful_link* directory = nullptr;
  std::unique_ptr<announcer> directories;
  std::unique_ptr<peer_tier> tier;
  brought_up brought;
};

}  // namespace kvd::test
