#include "actors/server_http.hpp"

#include <boost/json.hpp>
#include <caf/send.hpp>

namespace kvd {

namespace {

namespace json = boost::json;

json::object pool_json(const slab_pool& pool) {
  const auto usage = pool.snapshot();
  json::array nodes;
  for (const auto& each : usage.nodes) {
    nodes.push_back({{"node", each.node},
                     {"capacity_bytes", each.capacity},
                     {"claimed_bytes", each.claimed},
                     {"used_bytes", each.used},
                     {"largest_free_bytes", each.largest_free}});
  }
  json::array classes;
  for (const auto& each : usage.classes) {
    classes.push_back({{"slot_bytes", each.bytes},
                       {"slots_live", each.slots_live},
                       {"slots_free", each.slots_free},
                       {"slabs", each.slabs}});
  }
  return {{"capacity_bytes", usage.capacity}, {"claimed_bytes", usage.claimed},
          {"used_bytes", usage.used},         {"largest_free_bytes", usage.largest_free},
          {"nodes", std::move(nodes)},        {"classes", std::move(classes)}};
}

json::object store_json(const store_metrics& metrics, const block_store& store) {
  return {{"policy", std::string(store.policy_name())},
          {"resident_blocks", metrics.resident_blocks.value()},
          {"resident_bytes", metrics.resident_bytes.value()},
          {"inflight_bytes", metrics.inflight_bytes.value()},
          {"index_bytes", store.index_bytes()},
          {"leases", metrics.leases.value()},
          {"leased_blocks", metrics.leased_blocks.value()},
          {"pinned_bytes", metrics.pinned_bytes.value()},
          {"block_hits", metrics.block_hits.value()},
          {"block_misses", metrics.block_misses.value()}};
}

json::array namespaces_json(const block_store& store) {
  json::array all;
  for (const auto* each : store.namespaces()) {
    all.push_back({{"name", each->name},
                   {"resident_blocks", each->resident_blocks.value()},
                   {"resident_bytes", each->resident_bytes.value()},
                   {"saved_blocks", each->saved_blocks.value()},
                   {"block_hits", each->block_hits.value()},
                   {"block_misses", each->block_misses.value()}});
  }
  return all;
}

json::array instances_json(const instance_table& table) {
  json::array all;
  for (const auto& each : table.all()) {
    all.push_back({{"id", each->id},
                   {"namespace", each->namespace_name},
                   {"workers", each->workers.size()},
                   {"world_size", each->world_size},
                   {"tp_size", each->tp_size},
                   {"state", each->sealed ? "sealed" : "registering"},
                   {"operations", each->life->running()}});
  }
  return all;
}

json::object ssd_json(const ssd_tier& tier, const ssd_metrics& metrics) {
  const auto now = tier.status();
  json::array files;
  for (const auto& each : now.files) {
    files.push_back({{"path", each.path},
                     {"backend", each.backend},
                     {"trouble", each.trouble},
                     {"registered_buffers", each.memory.buffers},
                     {"registration_refused", each.memory.refused},
                     {"records", each.log.records},
                     {"record_bytes", each.log.record_bytes},
                     {"capacity_bytes", each.log.capacity_bytes},
                     {"segments", each.log.segments},
                     {"segments_free", each.log.segments_free},
                     {"segments_reclaimed", each.log.segments_reclaimed},
                     {"records_corrupt", each.log.records_corrupt},
                     {"index_bytes", each.log.index_bytes}});
  }
  return {{"on", now.on},
          {"why_off", now.why_off},
          {"write_backlog", metrics.write_queue.value() + metrics.writes_inflight.value()},
          {"operations", metrics.operations.value()},
          {"fixed_operations", metrics.fixed_operations.value()},
          {"files", std::move(files)}};
}

json::object sharing_json(const sharing_node& node, const sharing_metrics& metrics) {
  json::array directories;
  for (const auto& each : node.directories()) {
    directories.push_back({{"metaserver", each.address},
                           {"up", each.up},
                           {"spare", each.spare},
                           {"directory", each.directory_id},
                           {"queued", each.queued},
                           {"buckets_mended", each.mended},
                           {"trouble", each.trouble}});
  }
  json::array peers;
  for (const auto& each : node.peers()) {
    peers.push_back({{"peer", each.node},
                     {"link", each.link},
                     {"blocks", each.blocks},
                     {"bytes", each.bytes},
                     {"trouble", each.trouble}});
  }
  return {{"node", node.node()},
          {"announced_blocks", metrics.announced_blocks.value()},
          {"locked_blocks", metrics.locked_blocks.value()},
          {"fetched_blocks", metrics.fetched_blocks.value()},
          {"fetched_bytes", metrics.fetched_bytes.value()},
          {"metaservers", std::move(directories)},
          {"peers", std::move(peers)}};
}

json::array ceiling_json(const hit_ceiling& ceiling) {
  json::array all;
  for (const auto& each : ceiling.read()) {
    all.push_back({{"window", each.window},
                   {"requests", each.requests},
                   {"distinct_misses", each.distinct_misses},
                   {"hit_rate", each.hit_rate}});
  }
  return all;
}

}  // namespace

server_http::server_http(server_view view)
    : view_(std::move(view)), started_(view_.time.now()),
      exporter_(view_.metrics, [this] { return extras(); }) {}

scrape_extras server_http::extras() const {
  scrape_extras extra;
  const auto progress = view_.claim.progress();
  extra.boot_id = view_.boot_id;
  extra.startup_progress = progress.total == 0 ? 1.0
                                               : static_cast<double>(progress.claimed) /
                                                     static_cast<double>(progress.total);
  extra.ready = unready_reasons().empty();
  for (const auto& each : view_.pool.snapshot().nodes) {
    extra.pool.push_back({.node = each.node < 0 ? "all" : std::to_string(each.node),
                          .capacity_bytes = each.capacity,
                          .used_bytes = each.used,
                          .largest_free_bytes = each.largest_free});
  }
  for (const auto* each : view_.store.namespaces()) {
    extra.namespaces.push_back(
        {.name = each->name,
         .resident_bytes = static_cast<std::uint64_t>(each->resident_bytes.value()),
         .resident_blocks = static_cast<std::uint64_t>(each->resident_blocks.value()),
         .hits = each->block_hits.value(),
         .misses = each->block_misses.value(),
         .saved_blocks = each->saved_blocks.value()});
  }
  for (const auto& each : view_.ceiling.read()) {
    extra.hit_ceilings.push_back({each.window, each.distinct_misses, each.requests, each.hit_rate});
  }
  if (const auto* pusher = view_.pusher()) {
    extra.pushes = pusher->exports().value();
    extra.push_failures = pusher->failures().value();
  }
  return extra;
}

health_report server_http::health() {
  const auto progress = view_.claim.progress();
  const auto percent = progress.total == 0 ? 100 : progress.claimed * 100 / progress.total;
  return {.started = progress.claimed == progress.total,
          .percent_started = static_cast<unsigned>(percent)};
}

readiness_report server_http::ready() {
  return {unready_reasons()};
}

std::vector<std::string> server_http::unready_reasons() const {
  std::vector<std::string> reasons;
  const auto progress = view_.claim.progress();
  if (progress.failure) {
    reasons.push_back("the pool could not be claimed: " + progress.failure->detail);
  } else if (progress.claimed < progress.total) {
    reasons.push_back("the pool is being claimed");
  }
  if (view_.draining.load()) reasons.push_back("draining");
  if (view_.metrics.control.task_failures.value() > 0) {
    reasons.push_back("a background task failed; see the log");
  }
  return reasons;
}

std::string server_http::status_json() {
  const auto uptime =
      std::chrono::duration_cast<std::chrono::seconds>(view_.time.now() - started_).count();
  const auto at = health();
  const char* state = view_.draining.load() ? "draining" : at.started ? "serving" : "starting";
  json::object status{
      {"version", KVD_VERSION},
      {"boot_id", view_.boot_id},
      {"uptime_seconds", uptime},
      {"state", state},
      {"percent_started", at.percent_started},
      {"pool", pool_json(view_.pool)},
      {"store", store_json(view_.metrics.store, view_.store)},
      {"namespaces", namespaces_json(view_.store)},
      {"instances", instances_json(view_.instances)},
      {"sessions", view_.metrics.control.sessions.value()},
      {"hit_ceiling", ceiling_json(view_.ceiling)},
      {"copy", json::object{{"save_queue", view_.metrics.copy.save_queue.value()},
                            {"load_queue", view_.metrics.copy.load_queue.value()},
                            {"inflight", view_.metrics.copy.inflight.value()},
                            {"save_bytes", view_.metrics.copy.save_bytes.value()},
                            {"load_bytes", view_.metrics.copy.load_bytes.value()}}},
  };
  if (view_.ssd != nullptr) status["ssd"] = ssd_json(*view_.ssd, view_.metrics.ssd);
  if (view_.sharing != nullptr) {
    status["sharing"] = sharing_json(*view_.sharing, view_.metrics.sharing);
  }
  return json::serialize(status);
}

std::string server_http::config_json() {
  return view_.options.effective_json;
}

std::optional<std::string> server_http::metrics_text() {
  if (!view_.options.enable_prometheus) return std::nullopt;
  return exporter_.text();
}

std::vector<std::string> server_http::instances() {
  std::vector<std::string> ids;
  for (const auto& each : view_.instances.all())
    ids.push_back(each->id);
  return ids;
}

void server_http::cleanup_instances(std::optional<std::string> id, instances_reply answer) {
  const auto to = [answer](result<removed_instances> outcome) {
    answer(std::move(outcome).map([](removed_instances removed) {
      return instances_cleanup_report{std::move(removed.ids), removed.tensors};
    }));
  };
  caf::anon_send(view_.engine,
                 message::cleanup_instances{id.value_or(""), reply<removed_instances>(to)});
}

void server_http::cleanup_memory(memory_reply answer) {
  const auto to = [answer](result<block_store::cleanup> outcome) {
    answer(std::move(outcome).map([](const block_store::cleanup& total) {
      return memory_cleanup_report{total.evicted_blocks, total.evicted_bytes, total.reclaimed_bytes,
                                   total.still_referenced_blocks};
    }));
  };
  caf::anon_send(view_.cache, message::cleanup_memory{reply<block_store::cleanup>(to)});
}

}  // namespace kvd
