#include "transport/engine/save_path.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "transport/engine/hashes.hpp"

namespace kvd {

namespace {

bool same_hashes(const repeated_bytes& a, const repeated_bytes& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

std::int64_t nanoseconds(duration d) {
  return std::chrono::nanoseconds(d).count();
}

}  // namespace

// Layers of one request that fill the same part from the same list of hashes.
struct save_path::bundle {
  struct member {
    const pegaflow::SaveLayer* layer;
    std::uint32_t registered;  // index among the worker's layers
    std::uint32_t cell;
    std::uint64_t offset;
  };
  scope_id in = 0;
  std::uint32_t part = 0;
  std::vector<member> members;
  std::vector<std::uint32_t> cells;
  std::vector<std::uint32_t> pending;  // positions still to claim
  std::vector<std::uint32_t> busy;     // positions that others are copying
  std::vector<part_claim> claims;

  const repeated_bytes& hashes() const { return members.front().layer->block_hashes(); }
};

struct save_path::job {
  save_path* path = nullptr;
  operation running;
  const pegaflow::SaveRequest* request = nullptr;
  save_waiter* waiter = nullptr;
  const worker* source = nullptr;
  // Only the first `bundles_used` are this request's; the rest keep their capacity for later ones.
  std::vector<bundle> bundles;
  std::size_t bundles_used = 0;
  copy_job copy;
  time_point started;
  std::uint64_t blocks_dropped = 0;
  std::uint64_t commits_seen = 0;
  job* next = nullptr;
};

save_path::save_path(block_store& store, const clock& time, copy_metrics& metrics)
    : store_(store), clock_(time), metrics_(metrics), jobs_(limits::copy_jobs_max) {}

save_path::~save_path() = default;

void save_path::start(operation running, const pegaflow::SaveRequest& request,
                      save_waiter& waiter) {
  auto* work = jobs_.take();
  if (work == nullptr) {
    waiter.saved(
        fail(errc::limit_exceeded, fmt::format("{} saves are under way, limit {}",
                                               limits::copy_jobs_max, limits::copy_jobs_max)));
    return;
  }
  work->path = this;
  work->running = std::move(running);
  work->request = &request;
  work->waiter = &waiter;
  work->started = clock_.now();
  work->blocks_dropped = 0;
  work->bundles_used = 0;
  if (auto ready = prepare(*work); !ready) {
    finish(*work, tl::unexpected(ready.error()));
    return;
  }
  step(*work);
}

// Checks the request against the registration and sorts its layers into bundles.
result<void> save_path::prepare(job& work) {
  const auto& request = *work.request;
  const auto& of = work.running.of();
  if (request.device_id() < 0) {
    return fail(errc::invalid_argument,
                fmt::format("device_id must not be negative, got {}", request.device_id()));
  }
  for (const auto& layer : request.saves()) {
    if (layer.block_ids_size() != layer.block_hashes_size()) {
      return fail(errc::invalid_argument,
                  fmt::format("block_ids length {} does not match block_hashes {} for layer {}",
                              layer.block_ids_size(), layer.block_hashes_size(),
                              layer.layer_name()));
    }
    if (auto hashes = check_hashes(layer.block_hashes()); !hashes) return hashes;
  }
  if (auto sealed = of.require_sealed(); !sealed) return sealed;
  work.source = of.find_worker(request.device_id());
  if (work.source == nullptr) {
    return fail(errc::worker_missing,
                fmt::format("device {} not found in instance {}", request.device_id(), of.id));
  }
  const auto& layout = work.source->layout;
  if (layout.tp_rank != request.tp_rank() || layout.pp_rank != request.pp_rank()) {
    return fail(errc::invalid_argument,
                fmt::format("device {} is registered with tp_rank {} pp_rank {}, not {} and {}",
                            request.device_id(), layout.tp_rank, layout.pp_rank, request.tp_rank(),
                            request.pp_rank()));
  }
  for (const auto& layer : request.saves()) {
    if (auto added = add_layer(work, layer); !added) return added;
  }
  return {};
}

result<void> save_path::add_layer(job& work, const pegaflow::SaveLayer& layer) {
  const auto& of = work.running.of();
  const auto at = work.source->layer_by_name.find(layer.layer_name());
  if (at == work.source->layer_by_name.end()) {
    return fail(errc::invalid_argument,
                fmt::format("layer {} is not registered on device {} of instance {}",
                            layer.layer_name(), work.source->layout.device_id, of.id));
  }
  const auto& registered = work.source->layout.layers[at->second];
  for (const auto block_id : layer.block_ids()) {
    if (block_id >= registered.num_blocks) {
      return fail(errc::invalid_argument,
                  fmt::format("block_id {} out of range for layer {} with {} blocks", block_id,
                              layer.layer_name(), registered.num_blocks));
    }
  }
  if (layer.block_ids().empty()) return {};
  const auto& place = of.places->places(work.source->layout.device_id)[at->second];
  const auto in = of.scopes[place.group];
  const bundle::member member{&layer, at->second, place.cell, place.offset};
  // Usually every layer brings the same blocks, so the newest bundle is the one.
  for (auto i = work.bundles_used; i-- > 0;) {
    auto& known = work.bundles[i];
    if (known.in != in || known.part != place.part) continue;
    if (!same_hashes(known.hashes(), layer.block_hashes())) continue;
    known.members.push_back(member);
    known.cells.push_back(place.cell);
    return {};
  }
  if (work.bundles_used == work.bundles.size()) work.bundles.emplace_back();
  auto& fresh = work.bundles[work.bundles_used++];
  fresh.in = in;
  fresh.part = place.part;
  fresh.members.assign(1, member);
  fresh.cells.assign(1, place.cell);
  fresh.claims.clear();
  fresh.busy.clear();
  fresh.pending.resize(static_cast<std::size_t>(layer.block_hashes_size()));
  std::iota(fresh.pending.begin(), fresh.pending.end(), 0U);
  return {};
}

// Claims and copies what can be had now; waits for others' copies when only those are left.
void save_path::step(job& work) {
  if (claim(work)) {
    for (std::size_t i = 0; i < work.bundles_used; ++i)
      add_ranges(work, work.bundles[i]);
    plan_copies(work.copy);
    work.copy.direction = copy_direction::save;
    work.copy.owner = &work;
    work.copy.should_stop = nullptr;
    work.copy.deadline = time_point::max();
    work.copy.on_done = [](copy_job& copy, copy_outcome outcome) noexcept {
      auto& done = *static_cast<job*>(copy.owner);
      done.path->copied(done, outcome);
    };
    if (work.source->copier().submit(work.copy)) return;
    for (std::size_t i = 0; i < work.bundles_used; ++i)
      store_.abandon(work.bundles[i].claims);
    finish(work, fail(errc::limit_exceeded, fmt::format("the save queue of device {} is full",
                                                        work.source->layout.device_id)));
    wake_waiting();
    return;
  }
  const auto waits = [](const bundle& each) { return !each.pending.empty(); };
  const auto used = std::span(work.bundles).first(work.bundles_used);
  if (std::any_of(used.begin(), used.end(), waits)) {
    park(work);
    return;
  }
  finish(work, work.blocks_dropped == 0
                   ? std::string()
                   : fmt::format("{} blocks were left out: the pool has no room that may be used",
                                 work.blocks_dropped));
}

// Claims every pending position; true when there is something to copy.
bool save_path::claim(job& work) {
  {
    const std::lock_guard lock(parked_mutex_);
    work.commits_seen = commits_;
  }
  bool any = false;
  for (std::size_t i = 0; i < work.bundles_used; ++i) {
    auto& each = work.bundles[i];
    each.claims.clear();
    each.busy.clear();
    const auto counts = store_.claim({.in = each.in,
                                      .part = each.part,
                                      .numa_node = work.source->copier().numa_node(),
                                      .origin = origin_of(work.running.of()),
                                      .hashes = as_hash_list(each.hashes()),
                                      .positions = each.pending},
                                     each.claims, each.busy);
    work.blocks_dropped += counts.no_room;
    each.pending.swap(each.busy);
    any = any || !each.claims.empty();
  }
  return any;
}

void save_path::add_ranges(job& work, const bundle& of) {
  auto& ranges = work.copy.ranges;
  for (const auto& member : of.members) {
    const auto& layout = work.source->layout.layers[member.registered];
    const auto* tensor = work.source->memory[member.registered]->data();
    for (const auto& claim : of.claims) {
      if (store_.cell_filled(claim, member.cell)) continue;
      const auto id = member.layer->block_ids(static_cast<int>(claim.position));
      const auto* from = tensor + id * layout.block_stride();
      auto* to = claim.address + member.offset;
      if (layout.split()) {
        ranges.push_back({to, from, layout.segment_bytes});
        ranges.push_back(
            {to + layout.segment_bytes, from + layout.kv_stride, layout.segment_bytes});
      } else {
        ranges.push_back({to, from, layout.block_bytes()});
      }
    }
  }
}

void save_path::copied(job& work, copy_outcome outcome) {
  const auto used = std::span(work.bundles).first(work.bundles_used);
  work.copy.ranges.clear();
  if (outcome != copy_outcome::done) {
    for (auto& each : used)
      store_.abandon(each.claims);
    metrics_.save_failures.add();
    finish(work, fail(errc::device,
                      fmt::format("copying from device {} failed", work.source->layout.device_id)));
    wake_waiting();
    return;
  }
  for (auto& each : used) {
    if (!each.claims.empty()) store_.commit(each.claims, each.cells);
  }
  metrics_.save_bytes.add(work.copy.total_bytes);
  step(work);
  wake_waiting();
}

// Waits until another job commits or gives up, unless one did since we looked.
void save_path::park(job& work) {
  {
    const std::lock_guard lock(parked_mutex_);
    if (work.commits_seen == commits_) {
      work.next = parked_;
      parked_ = &work;
      return;
    }
  }
  step(work);
}

void save_path::wake_waiting() {
  job* waiting = nullptr;
  {
    const std::lock_guard lock(parked_mutex_);
    ++commits_;
    std::swap(waiting, parked_);
  }
  while (waiting != nullptr) {
    auto* following = waiting->next;
    step(*waiting);
    waiting = following;
  }
}

void save_path::tick() {
  job* late = nullptr;
  const auto before = clock_.now() - limits::save_wait_max;
  {
    const std::lock_guard lock(parked_mutex_);
    auto** link = &parked_;
    while (*link != nullptr) {
      auto* each = *link;
      if (each->started > before) {
        link = &each->next;
        continue;
      }
      *link = each->next;
      each->next = late;
      late = each;
    }
  }
  while (late != nullptr) {
    auto* following = late->next;
    finish(*late,
           std::string("some blocks were left out: they are being copied by another worker, or the "
                       "pool is not claimed yet"));
    late = following;
  }
}

void save_path::finish(job& work, result<std::string> outcome) {
  metrics_.save_seconds.observe(static_cast<double>(nanoseconds(clock_.now() - work.started)) *
                                1e-9);
  auto* waiter = work.waiter;
  work.copy.ranges.clear();
  work.running.end();
  jobs_.give_back(&work);
  waiter->saved(std::move(outcome));
}

}  // namespace kvd
