#pragma once
// The server role, put together: memory, block store, engine plane, actors and both listeners.
//
//   create(): ports are bound, the claim of the pool begins, requests are answered
//   begin_drain(): new work is refused, loads of leased blocks go on
//   destructor: ends listeners, actors, copies and memory, in that order
//
// Owner: run_process (or a test), one thread.

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include "actors/ceiling_observer.hpp"
#include "actors/engine_adapter.hpp"
#include "actors/instance_registry.hpp"
#include "actors/server_http.hpp"
#include "actors/server_options.hpp"
#include "actors/sharing_node.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "core/server_metrics.hpp"
#include "memory/arena.hpp"
#include "memory/block_store.hpp"
#include "memory/lease_table.hpp"
#include "memory/numa.hpp"
#include "memory/slab_pool.hpp"
#include "storage/ssd_tier.hpp"
#include "transport/device/host_device.hpp"
#include "transport/device/host_memory.hpp"
#include "transport/engine/load_path.hpp"
#include "transport/engine/query_path.hpp"
#include "transport/engine/save_path.hpp"
#include "transport/grpc/engine_service.hpp"

namespace kvd {

// CAF as kvd runs it: the sharing scheduler, because an idle stealing worker sleeps for up to 10
// ms.
class actor_config : public caf::actor_system_config {
public:
  actor_config();
};

class server_node {
public:
  // Binds, begins the claim, serves. The error says what to change. `on_shutdown` is called on any
  // thread when a client asks the server to stop.
  static result<std::unique_ptr<server_node>> create(const server_options& options,
                                                     std::function<void()> on_shutdown);
  ~server_node();
  server_node(const server_node&) = delete;
  server_node& operator=(const server_node&) = delete;

  std::uint16_t grpc_port() const noexcept { return grpc_->port(); }
  std::uint16_t http_port() const noexcept { return http_->port(); }

  // Why the pool could not be claimed, once that is known.
  std::optional<error> claim_failure() const;
  void begin_drain() noexcept;
  // No load or save runs any more.
  bool drained() const noexcept;

private:
  server_node(const server_options& options, std::function<void()> on_shutdown);
  using ssd_files = std::vector<ssd_tier::opened_file>;
  result<void> claim_memory();
  result<ssd_files> open_files();
  result<void> build_pool(const ssd_files& files);
  result<void> build_store();
  void build_ssd(ssd_files files);
  result<void> open_sharing();
  void build_plane();
  result<void> listen();
  result<void> start_pushing();

  const server_options options_;
  const std::function<void()> on_shutdown_;
  system_clock clock_;
  system_random random_;
  server_metrics metrics_;
  std::string boot_id_;
  std::atomic<bool> draining_{false};

  // Memory outlives everything that points into it.
  std::unique_ptr<numa_nodes> nodes_;
  std::unique_ptr<page_supply> pages_;
  std::unique_ptr<arena> arena_;
  std::unique_ptr<slab_pool> pool_;
  std::unique_ptr<block_store> store_;
  std::unique_ptr<lease_table> leases_;
  std::unique_ptr<hit_ceiling> ceiling_;
  std::unique_ptr<ceiling_observer> observer_;

  // Its threads end before the store that they write from and read into.
  std::unique_ptr<ssd_tier> ssd_;

  std::unique_ptr<sharing_node> sharing_;

  // The copy threads end before the paths whose callbacks they call.
  std::unique_ptr<instance_table> instances_;
  std::unique_ptr<query_path> queries_;
  std::unique_ptr<save_path> saves_;
  std::unique_ptr<load_path> loads_;
  std::unique_ptr<host_device> device_;
  std::unique_ptr<host_opener> opener_;
  std::unique_ptr<instance_registry> registry_;

  actor_config actor_config_;
  std::unique_ptr<caf::actor_system> actors_;
  engine_actor engine_;
  cache_actor cache_;
  ssd_actor ssd_life_;
  std::unique_ptr<engine_adapter> control_;
  std::unique_ptr<engine_server> grpc_;
  std::unique_ptr<server_http> backend_;
  std::unique_ptr<http::server> http_;
  std::unique_ptr<otlp::exporter> pusher_;
  std::atomic<const otlp::exporter*> pushing_{nullptr};  // pusher_, for the threads that scrape
};

}  // namespace kvd
