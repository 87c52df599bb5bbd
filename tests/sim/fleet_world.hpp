#pragma once
// A fleet under one seed: servers that share blocks, their metaservers, and a network between them
// that delays, cuts and loses. Real stores, locks, announcers, tiers and actors; time is the
// seed's.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/sharing.hpp"
#include "memory/directory_store.hpp"
#include "memory/transfer_locks.hpp"
#include "tests/memory/store_fixture.hpp"
#include "tests/sim/seeded_system.hpp"
#include "transport/peer/loopback_peer.hpp"

namespace kvd::sim {

// Messages between named ends. A message takes a random time; over a cut, or to an end that died,
// it is lost and its caller hears of it by a time-out.
class fleet_network {
public:
  fleet_network(seeded_system& world) : world_(world) {}
  void cut(const std::string& a, const std::string& b, bool off);
  bool is_cut(const std::string& a, const std::string& b) const;
  void heal() { cuts_.clear(); }
  // Runs `deliver` at the other end, or `lost` at this one, later.
  void send(const std::string& from, const std::string& to, std::function<void()> deliver,
            std::function<void()> lost);
  // Delivers what is due; how many.
  std::size_t step();

private:
  seeded_system& world_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::multimap<time_point, std::function<void()>> due_;
};

// One metaserver; each life has a directory of its own.
struct fleet_meta {
  std::string name;
  int life = 0;
  std::shared_ptr<directory_store> known;  // null: dead
};

class fleet_node;

class fleet_world {
public:
  fleet_world(std::uint64_t seed, int metas, int nodes);
  ~fleet_world();

  // Runs everybody, by chance, for a while.
  void pass(duration by);
  fleet_node* node(const std::string& name);
  void start_meta(fleet_meta& which);

  caf::actor_system_config config;
  seeded_system system;
  fleet_network network;
  loopback_network bytes;
  std::vector<fleet_meta> metas;
  std::vector<std::unique_ptr<fleet_node>> nodes;
};

// One server; each life has an empty pool and another boot id.
class fleet_node {
public:
  fleet_node(fleet_world& in, std::string named) : world(in), name(std::move(named)) { start(); }
  ~fleet_node() { kill(); }

  void start();
  void kill();
  void save(const test::hashes& which);
  // False: there is nothing to wait for.
  bool ask(const std::string& request, const test::hashes& which);
  bool over(const std::string& request) const;
  // Leading hits, each compared with what was saved; ends the query.
  std::size_t take(const std::string& request, const test::hashes& which);
  // As a directory would name what is here.
  std::set<std::string> holds() const;

  // What one life consists of; the order is that of their needs.
  struct life {
    life(fleet_node& of, fleet_world& in);
    ~life();
    test::pool_memory memory{pool_bytes};
    std::unique_ptr<slab_pool> pool;
    store_metrics store_numbers;
    std::unique_ptr<block_store> store;
    scope_id scope = 0;
    sharing_metrics sharing;
    control_metrics control;
    peer_metrics peers;
    residency_feed feed{4096, {}};
    std::unique_ptr<transfer_locks> locks;
    peer_pool offered;
    std::unique_ptr<loopback_peer> port;
    registrar_actor registrar;
    peer_actor peer;
    std::unique_ptr<announcer> directories;
    std::unique_ptr<peer_tier> tier;
  };
  static constexpr std::size_t pool_bytes = 192 << 10;
  static constexpr std::uint64_t part_bytes = 1024;

  fleet_world& world;
  const std::string name;
  std::string boot_id;
  int lives = 0;
  std::unique_ptr<life> alive;  // null: dead
};

}  // namespace kvd::sim
