#pragma once
// What the admin endpoints of the server role report and do. Reads tables and counters directly;
// cleanups go to the actors that own the state.

#include <functional>
#include <string>

#include "actors/http_routes.hpp"
#include "actors/interfaces.hpp"
#include "actors/metrics.hpp"
#include "actors/server_options.hpp"
#include "actors/sharing_node.hpp"
#include "core/clock.hpp"
#include "core/server_metrics.hpp"
#include "memory/arena.hpp"
#include "memory/hit_ceiling.hpp"
#include "memory/slab_pool.hpp"
#include "storage/ssd_tier.hpp"
#include "transport/engine/instance.hpp"

namespace kvd {

// Everything it reads; all outlive the HTTP server.
struct server_view {
  const server_options& options;
  const clock& time;
  const server_metrics& metrics;
  const arena& claim;
  const slab_pool& pool;
  const block_store& store;
  const instance_table& instances;
  const hit_ceiling& ceiling;
  const ssd_tier* ssd;          // null: none
  const sharing_node* sharing;  // null: nothing is shared
  const std::atomic<bool>& draining;
  // Pushes that a collector took, and that failed; null when nothing is pushed.
  std::function<const otlp::exporter*()> pusher;
  std::string boot_id;
  engine_actor engine;
  cache_actor cache;
};

class server_http final : public server_http_backend {
public:
  explicit server_http(server_view view);

  health_report health() override;
  readiness_report ready() override;
  std::string status_json() override;
  std::string config_json() override;
  std::vector<std::string> instances() override;
  std::optional<std::string> metrics_text() override;
  void cleanup_instances(std::optional<std::string> id, instances_reply reply) override;
  void cleanup_memory(memory_reply reply) override;

  // The same numbers for a collector.
  std::vector<otlp::metric> metrics_for_push() const { return exporter_.collect_for_push(); }

private:
  scrape_extras extras() const;
  std::vector<std::string> unready_reasons() const;

  server_view view_;
  time_point started_;
  metrics_exporter exporter_;
};

}  // namespace kvd
