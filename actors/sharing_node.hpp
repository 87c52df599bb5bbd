#pragma once
// What a server needs to share blocks with other nodes, put together: the port that others read
// its pool through, the locks, the announcer, the peers.
//
//   create() -> spawn() -> begin(), once the Engine service answers -> leave() -> destructor
//
// Owner: server_node, one thread; ends after the listeners, and before the actor system and the
// store.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <caf/actor_system.hpp>

#include "actors/interfaces.hpp"
#include "actors/peer_tier.hpp"
#include "actors/server_options.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "memory/arena.hpp"
#include "memory/transfer_locks.hpp"
#include "transport/engine/transfer_desk.hpp"

namespace kvd {

class sharing_node {
public:
  // References outlive it. Errors say which option to change.
  struct world {
    const server_options& options;
    block_store& store;
    const slab_pool& pool;
    const arena& memory;
    const page_supply& pages;
    stored_tier* ssd;  // null: none
    const clock& time;
    random_source& random;
    server_metrics& metrics;
    std::string boot_id;
  };
  static result<std::unique_ptr<sharing_node>> create(world in);
  ~sharing_node();

  lower_tier& tier() noexcept { return *tier_; }
  transfer_desk& desk() noexcept { return *desk_; }

  void spawn(caf::actor_system& system);
  // Metaservers are told of this node from now on.
  void begin();
  // Says goodbye to them; what others are reading goes on.
  void leave();
  // Everybody was told, and nobody reads any more.
  bool gone() const noexcept;
  // For those who tell it of instances that are gone.
  peer_actor peers_actor() const { return peers_.handle(); }

  const std::string& node() const noexcept { return node_; }
  std::vector<announcer::report> directories() const { return announcer_->status(); }
  std::vector<peer_tier::report> peers() const { return tier_->status(); }

private:
  explicit sharing_node(world in) : world_(std::move(in)) {}
  result<void> build();

  // Hands tasks to an actor that may not be there yet, or any more.
  template<class Actor>
  struct outlet {
    mutable std::mutex mutex;
    Actor to;  // GUARDED_BY(mutex)
    void post(std::function<void()> task) const;
    Actor handle() const;
    // Returns when the actor has ended.
    void end(caf::actor_system& system);
  };

  const world world_;
  std::string node_;  // "host:port" by which others reach our Engine service
  peer_pool pool_;
  outlet<registrar_actor> registrar_;
  outlet<peer_actor> peers_;
  std::unique_ptr<residency_feed> feed_;
  std::unique_ptr<transfer_locks> locks_;
  std::unique_ptr<peer_port> port_;
  std::unique_ptr<transfer_desk> desk_;
  std::unique_ptr<announcer> announcer_;
  std::unique_ptr<peer_tier> tier_;
  caf::actor_system* system_ = nullptr;
  std::atomic<bool> left_{false};
};

}  // namespace kvd
