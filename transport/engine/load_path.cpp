#include "transport/engine/load_path.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/limits.hpp"
#include "core/log.hpp"

namespace kvd {

namespace {

// A load that takes longer is worth a line: the engine's request stands still meanwhile.
constexpr std::chrono::duration<double> slow_copy{1.0};

}  // namespace

// One of the request's layer groups, resolved against the worker.
struct load_path::target_group {
  struct member {
    std::uint32_t registered;  // index among the worker's layers
    std::uint32_t part;
    std::uint64_t offset;
  };
  std::uint32_t group = 0;
  std::vector<member> members;
};

struct load_path::job {
  load_path* path = nullptr;
  operation running;
  const worker* target = nullptr;
  std::optional<load_state> flag;
  std::vector<target_group> groups;
  std::size_t groups_used = 0;
  std::vector<block_index> pinned;
  std::vector<bool> layer_seen;
  copy_job copy;
  time_point started;
};

load_path::load_path(block_store& store, lease_table& leases, const clock& time,
                     copy_metrics& metrics)
    : store_(store), leases_(leases), clock_(time), metrics_(metrics),
      jobs_(limits::copy_jobs_max) {}

load_path::~load_path() = default;

result<void> load_path::check_leases(const pegaflow::LoadRequest& request) {
  for (const auto& load : request.loads()) {
    if (load.lease().size() != sizeof(lease_id)) {
      return fail(errc::invalid_argument, fmt::format("query lease id must be {} bytes, got {}",
                                                      sizeof(lease_id), load.lease().size()));
    }
  }
  return {};
}

result<void> load_path::start(operation running, const pegaflow::LoadRequest& request,
                              load_state flag) {
  auto* work = jobs_.take();
  if (work == nullptr) {
    flag.publish(-1);
    return fail(errc::limit_exceeded, fmt::format("{} loads are under way, limit {}",
                                                  limits::copy_jobs_max, limits::copy_jobs_max));
  }
  work->path = this;
  work->running = std::move(running);
  work->flag = std::move(flag);
  work->started = clock_.now();
  if (auto ready = prepare(*work, request); !ready) {
    finish(*work, -1);
    return ready;
  }
  if (work->copy.ranges.empty()) {
    finish(*work, 1);
    return {};
  }
  plan_copies(work->copy);
  work->copy.direction = copy_direction::load;
  work->copy.owner = work;
  work->copy.deadline = work->started + limits::load_deadline;
  work->copy.should_stop = [](void* owner) noexcept {
    const auto& asked = *static_cast<job*>(owner);
    return asked.running.of().life->cancelled() || asked.flag->abandoned();
  };
  work->copy.on_done = [](copy_job& copy, copy_outcome outcome) noexcept {
    auto& done = *static_cast<job*>(copy.owner);
    done.path->copied(done, outcome);
  };
  const auto device_id = work->target->layout.device_id;
  if (work->target->copier().submit(work->copy)) return {};
  finish(*work, -1);
  return fail(errc::limit_exceeded, fmt::format("the load queue of device {} is full", device_id));
}

result<void> load_path::prepare(job& work, const pegaflow::LoadRequest& request) {
  const auto& of = work.running.of();
  if (auto sealed = of.require_sealed(); !sealed) return sealed;
  work.target = of.find_worker(request.device_id());
  if (work.target == nullptr) {
    return fail(errc::worker_missing,
                fmt::format("device {} not found in instance {}", request.device_id(), of.id));
  }
  if (auto groups = add_groups(work, request); !groups) return groups;
  for (const auto& load : request.loads()) {
    if (auto added = add_load(work, load); !added) return added;
  }
  return {};
}

result<void> load_path::add_groups(job& work, const pegaflow::LoadRequest& request) {
  const auto& of = work.running.of();
  if (request.groups().empty()) return fail(errc::invalid_argument, "groups is empty");
  if (static_cast<std::size_t>(request.groups_size()) > limits::layer_groups_max) {
    return fail(errc::invalid_argument, fmt::format("{} groups, limit {}", request.groups_size(),
                                                    limits::layer_groups_max));
  }
  const auto& places = of.places->places(work.target->layout.device_id);
  work.layer_seen.assign(work.target->layout.layers.size(), false);
  for (const auto& group : request.groups()) {
    if (work.groups_used == work.groups.size()) work.groups.emplace_back();
    auto& fresh = work.groups[work.groups_used++];
    fresh.members.clear();
    for (const auto& name : group.layer_names()) {
      const auto at = work.target->layer_by_name.find(name);
      if (at == work.target->layer_by_name.end()) {
        return fail(errc::invalid_argument,
                    fmt::format("layer {} is not registered on device {} of instance {}", name,
                                work.target->layout.device_id, of.id));
      }
      if (work.layer_seen[at->second]) {
        return fail(errc::invalid_argument, fmt::format("layer {} is in two groups", name));
      }
      work.layer_seen[at->second] = true;
      const auto& place = places[at->second];
      if (!fresh.members.empty() && fresh.group != place.group) {
        return fail(errc::invalid_argument,
                    fmt::format("layer {} of storage group {} is listed with layers of group {}",
                                name, place.group, fresh.group));
      }
      fresh.group = place.group;
      fresh.members.push_back({at->second, place.part, place.offset});
    }
  }
  return {};
}

result<void> load_path::add_load(job& work, const pegaflow::LeaseLoad& load) {
  const auto first = work.pinned.size();
  const auto in = leases_.redeem(load.lease(), work.running.of().serial, work.pinned);
  if (!in) {
    // The wire calls every failed redemption a storage error; only Release tells it apart.
    return fail(errc::storage, in.error().detail);
  }
  const auto blocks = std::span(std::as_const(work.pinned)).subspan(first);
  if (static_cast<std::size_t>(load.block_ids_by_group_size()) != work.groups_used) {
    return fail(errc::invalid_argument,
                fmt::format("block_ids_by_group has {} lists for {} groups",
                            load.block_ids_by_group_size(), work.groups_used));
  }
  for (std::size_t i = 0; i < work.groups_used; ++i) {
    const auto& targets = load.block_ids_by_group(static_cast<int>(i));
    if (static_cast<std::size_t>(targets.targets_size()) != blocks.size()) {
      return fail(errc::invalid_argument,
                  fmt::format("group {} has {} targets for a lease of {} blocks", i,
                              targets.targets_size(), blocks.size()));
    }
    if (auto added = add_targets(work, work.groups[i], targets, *in, blocks); !added) return added;
  }
  return {};
}

result<void> load_path::add_targets(job& work, const target_group& group,
                                    const pegaflow::LoadBlockIds& targets, scope_id in,
                                    std::span<const block_index> blocks) {
  const auto& of = work.running.of();
  for (int i = 0; i < targets.targets_size(); ++i) {
    const auto& target = targets.targets(i);
    if (target.target_case() != pegaflow::LoadBlockTarget::kBlockId || group.members.empty()) {
      continue;
    }
    if (of.scopes[group.group] != in) {
      return fail(errc::invalid_argument,
                  fmt::format("stored block has {} slots of group {}, the layers are of group {}: "
                              "namespace is shared by incompatible KV layouts",
                              store_.scope_of(in).parts.size(), store_.scope_of(in).group,
                              group.group));
    }
    for (const auto& member : group.members) {
      const auto& layer = work.target->layout.layers[member.registered];
      if (target.block_id() >= layer.num_blocks) {
        return fail(errc::invalid_argument,
                    fmt::format("block_id {} out of range for layer {} with {} blocks",
                                target.block_id(), layer.name, layer.num_blocks));
      }
    }
    add_block(work, group, blocks[static_cast<std::size_t>(i)], target.block_id());
  }
  return {};
}

void load_path::add_block(job& work, const target_group& group, block_index block,
                          std::uint32_t block_id) {
  std::uint32_t part = ~std::uint32_t{0};
  const std::byte* stored = nullptr;
  for (const auto& member : group.members) {
    if (member.part != part) {
      part = member.part;
      stored = store_.part_address(block, part);
    }
    const auto& layout = work.target->layout.layers[member.registered];
    auto* to = work.target->memory[member.registered]->data() + block_id * layout.block_stride();
    const auto* from = stored + member.offset;
    if (layout.split()) {
      work.copy.ranges.push_back({to, from, layout.segment_bytes});
      work.copy.ranges.push_back(
          {to + layout.kv_stride, from + layout.segment_bytes, layout.segment_bytes});
    } else {
      work.copy.ranges.push_back({to, from, layout.block_bytes()});
    }
  }
}

void load_path::copied(job& work, copy_outcome outcome) {
  if (outcome == copy_outcome::done) {
    metrics_.load_bytes.add(work.copy.total_bytes);
    finish(work, 1);
    return;
  }
  log::warn("load", "load {} instance={} device={}",
            outcome == copy_outcome::cancelled ? "was cancelled" : "failed", work.running.of().id,
            work.target->layout.device_id);
  if (outcome == copy_outcome::cancelled) metrics_.load_cancelled.add();
  finish(work, -1);
}

// Nothing is written to the device behind this. The flag comes last, for the client reuses its
// blocks as soon as it sees it.
void load_path::finish(job& work, std::int64_t state) {
  const auto took = std::chrono::duration<double>(clock_.now() - work.started);
  metrics_.load_seconds.observe(took.count());
  if (took > slow_copy && work.target != nullptr) {
    log::warn("load", "a load of {} bytes took {:.1f} s instance={} device={}",
              work.copy.total_bytes, took.count(), work.running.of().id,
              work.target->layout.device_id);
  }
  if (state < 0) metrics_.load_failures.add();
  store_.unpin(work.pinned);
  work.pinned.clear();
  work.copy.ranges.clear();
  work.groups_used = 0;
  work.target = nullptr;
  if (work.flag) work.flag->publish(state);
  work.flag.reset();
  work.running.end();
  jobs_.give_back(&work);
}

}  // namespace kvd
