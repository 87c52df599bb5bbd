#include "transport/engine/instance.hpp"

#include <fmt/format.h>

namespace kvd {

bool instance_life::begin() noexcept {
  const auto before = state_.fetch_add(one_operation, std::memory_order_acq_rel);
  if ((before & closing) == 0) return true;
  end();
  return false;
}

void instance_life::end() noexcept {
  const auto before = state_.fetch_sub(one_operation, std::memory_order_acq_rel);
  if (before == (one_operation | closing) && when_idle_) when_idle_();
}

void instance_life::close(bool cancel) noexcept {
  if (cancel) cancelled_.store(true, std::memory_order_release);
  // A refused begin() may pass through zero again, so idleness can be told more than once.
  const auto before = state_.fetch_or(closing, std::memory_order_acq_rel);
  if (before == 0 && when_idle_) when_idle_();
}

std::uint32_t instance_life::running() const noexcept {
  return state_.load(std::memory_order_acquire) / one_operation;
}

const worker* instance::find_worker(std::int32_t device_id) const noexcept {
  for (const auto& each : workers) {
    if (each->layout.device_id == device_id) return each.get();
  }
  return nullptr;
}

result<void> instance::require_sealed() const {
  if (sealed) return {};
  return fail(errc::invalid_argument,
              fmt::format("instance {} registration incomplete: {}/{} workers registered", id,
                          workers.size(), world_size));
}

std::shared_ptr<const instance> instance_table::find(const std::string& id) const {
  const std::shared_lock lock(mutex_);
  const auto at = instances_.find(id);
  return at == instances_.end() ? nullptr : at->second;
}

void instance_table::publish(std::shared_ptr<const instance> version) {
  const std::unique_lock lock(mutex_);
  auto& at = instances_[version->id];
  at.swap(version);
}

void instance_table::remove(const std::string& id) {
  std::shared_ptr<const instance> last;  // so that memory is unmapped outside the lock
  const std::unique_lock lock(mutex_);
  const auto at = instances_.find(id);
  if (at == instances_.end()) return;
  last = std::move(at->second);
  instances_.erase(at);
}

std::vector<std::shared_ptr<const instance>> instance_table::all() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::shared_ptr<const instance>> copy;
  copy.reserve(instances_.size());
  for (const auto& [id, version] : instances_)
    copy.push_back(version);
  return copy;
}

result<operation> operation::begin(std::shared_ptr<const instance> of) {
  if (!of->life->begin()) {
    return fail(errc::instance_missing, fmt::format("instance {} not found", of->id));
  }
  operation begun;
  begun.of_ = std::move(of);
  return begun;
}

operation& operation::operator=(operation&& other) noexcept {
  if (this != &other) {
    end();
    of_ = std::move(other.of_);
  }
  return *this;
}

void operation::end() noexcept {
  if (!of_) return;
  const auto over = std::move(of_);
  of_ = nullptr;
  over->life->end();
}

}  // namespace kvd
