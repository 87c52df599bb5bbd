#include "actors/instance_registry.hpp"

#include <fmt/format.h>

#include "core/limits.hpp"
#include "core/log.hpp"

namespace kvd {

namespace {

std::uint64_t tensors_of(const instance& of) {
  std::uint64_t count = 0;
  for (const auto& each : of.workers)
    count += each->memory.size();
  return count;
}

}  // namespace

result<void> instance_registry::register_worker(const pegaflow::RegisterContextRequest& request,
                                                const idle_notice& when_idle) {
  const auto at = open_.find(request.instance_id());
  std::shared_ptr<const instance> current = at == open_.end() ? nullptr : at->second;
  if (!current && open_.size() >= limits::instances_max) {
    return fail(errc::limit_exceeded, fmt::format("{} instances are registered, limit {}",
                                                  open_.size(), limits::instances_max));
  }
  if (current) {
    if (auto joins = check_joins(request, *current); !joins) return joins;
  }
  auto fresh = open_worker(request, opener_);
  if (!fresh) return tl::unexpected(fresh.error());
  std::shared_ptr<instance_life> life;
  const auto serial = next_serial_;
  if (!current) {
    life = std::make_shared<instance_life>([when_idle, serial] { when_idle(serial); });
    ++next_serial_;
  }
  auto next =
      add_worker(request, std::move(current), std::move(*fresh), std::move(life), serial, store_);
  if (!next) return tl::unexpected(next.error());
  log::info("engine",
            "registered worker instance={} namespace={} device={} tp_rank={} pp_rank={} layers={} "
            "workers={}/{} client_version={} page_first={}",
            request.instance_id(), request.namespace_(), request.device_id(), request.tp_rank(),
            request.pp_rank(), request.layer_names_size(), (*next)->workers.size(),
            (*next)->world_size, request.client_version(), request.page_first());
  table_.publish(*next);
  open_[request.instance_id()] = std::move(*next);
  metrics_.instances.set(static_cast<std::int64_t>(open_.size()));
  return {};
}

// Takes the instance out of sight and calls `then` when nothing of it runs any more.
// REQUIRES: it is open.
void instance_registry::close(const std::string& instance_id, bool cancel, gone then) {
  const auto at = open_.find(instance_id);
  auto last = at->second;
  open_.erase(at);
  metrics_.instances.set(static_cast<std::int64_t>(open_.size()));
  table_.remove(instance_id);
  leases_.drop_instance(last->serial);
  const auto life = last->life;
  auto& ending = closing_[last->serial];
  ending.waiting.push_back(std::move(then));
  ending.last = std::move(last);
  life->close(cancel);
}

void instance_registry::idle(std::uint64_t serial) {
  const auto at = closing_.find(serial);
  if (at == closing_.end()) return;  // told twice
  auto ending = std::move(at->second);
  closing_.erase(at);
  // A query that was under way when the instance closed may have granted a lease after that.
  leases_.drop_instance(serial);
  if (told_gone_) told_gone_(serial);
  const auto tensors = tensors_of(*ending.last);
  for (const auto& then : ending.waiting)
    then(*ending.last, tensors);
}

void instance_registry::unregister(const std::string& instance_id, const reply<void>& answer) {
  if (!open_.contains(instance_id)) {
    answer(fail(errc::instance_missing, fmt::format("instance {} not found", instance_id)));
    return;
  }
  close(instance_id, false, [answer](const instance& of, std::uint64_t tensors) {
    log::info("engine", "unregistered instance={} tensors={}", of.id, tensors);
    answer({});
  });
}

void instance_registry::cleanup(const std::string& instance_id,
                                const reply<removed_instances>& answer) {
  std::vector<std::string> ids;
  if (!instance_id.empty()) {
    if (!open_.contains(instance_id)) {
      answer(fail(errc::not_found, fmt::format("instance {} not found", instance_id)));
      return;
    }
    ids.push_back(instance_id);
  } else {
    for (const auto& [id, version] : open_)
      ids.push_back(id);
  }
  // Shared by the callbacks of all closing instances; the last one answers.
  auto removed = std::make_shared<removed_instances>();
  if (ids.empty()) {
    answer(*removed);
    return;
  }
  const auto count = ids.size();
  for (const auto& id : ids) {
    close(id, false, [answer, removed, count](const instance& of, std::uint64_t tensors) {
      log::info("engine", "cleaned up instance={} tensors={}", of.id, tensors);
      removed->ids.push_back(of.id);
      removed->tensors += tensors;
      if (removed->ids.size() == count) answer(*removed);
    });
  }
}

void instance_registry::session_opened(const std::string& instance_id, std::uint64_t token) {
  auto& newest = sessions_[instance_id];
  newest = std::max(newest, token);
  metrics_.sessions.set(static_cast<std::int64_t>(sessions_.size()));
}

void instance_registry::session_closed(const std::string& instance_id, std::uint64_t token) {
  const auto at = sessions_.find(instance_id);
  if (at == sessions_.end() || at->second != token) return;  // a newer session took its place
  sessions_.erase(at);
  metrics_.sessions.set(static_cast<std::int64_t>(sessions_.size()));
  if (!open_.contains(instance_id)) return;
  metrics_.sessions_lost.add();
  close(instance_id, true, [](const instance& of, std::uint64_t tensors) {
    // PegaFlow's own tests look for these words.
    log::info("engine", "Session cleanup (stream closed): dropped {} CUDA tensors for instance {}",
              tensors, of.id);
  });
}

}  // namespace kvd
