#include "storage/ssd_fetch.hpp"

#include <utility>

namespace kvd {

ssd_fetch_table::~ssd_fetch_table() {
  drop_if([](const ssd_fetch&) { return true; });
}

std::shared_ptr<ssd_fetch> ssd_fetch_table::find(const query_id& id) const {
  const std::lock_guard lock(mutex_);
  const auto at = fetches_.find(by_id::key(id.instance, id.request, id.group));
  return at == fetches_.end() ? nullptr : at->second;
}

bool ssd_fetch_table::add(const std::shared_ptr<ssd_fetch>& fetch) {
  const std::lock_guard lock(mutex_);
  return fetches_.emplace(own_key(fetch->instance, fetch->request, fetch->group), fetch).second;
}

std::shared_ptr<ssd_fetch> ssd_fetch_table::take(const query_id& id) {
  const std::lock_guard lock(mutex_);
  const auto at = fetches_.find(by_id::key(id.instance, id.request, id.group));
  if (at == fetches_.end()) return nullptr;
  auto taken = std::move(at->second);
  fetches_.erase(at);
  return taken;
}

template<class Condition>
std::size_t ssd_fetch_table::drop_if(Condition condition) {
  std::vector<std::shared_ptr<ssd_fetch>> dropped;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = fetches_.begin(); at != fetches_.end();) {
      if (condition(*at->second)) {
        dropped.push_back(std::move(at->second));
        at = fetches_.erase(at);
      } else {
        ++at;
      }
    }
  }
  for (const auto& each : dropped) {
    each->cancelled.store(true);
    release(*each);
  }
  return dropped.size();
}

void ssd_fetch_table::drop_instance(std::uint64_t serial) {
  drop_if([serial](const ssd_fetch& each) { return each.instance == serial; });
}

std::size_t ssd_fetch_table::drop_idle(time_point before) {
  return drop_if([before](ssd_fetch& each) {
    const std::lock_guard lock(each.mutex);
    return each.heard_of < before;
  });
}

std::size_t ssd_fetch_table::size() const {
  const std::lock_guard lock(mutex_);
  return fetches_.size();
}

void ssd_fetch_table::hold(ssd_fetch& fetch, std::span<const block_index> pinned,
                           std::uint32_t brought) {
  {
    const std::lock_guard lock(fetch.mutex);
    if (!fetch.released) {
      fetch.pins.insert(fetch.pins.end(), pinned.begin(), pinned.end());
      fetch.brought += brought;
      return;
    }
  }
  store_.unpin(pinned);
}

std::size_t ssd_fetch_table::release(ssd_fetch& fetch) {
  std::vector<block_index> pins;
  std::size_t brought = 0;
  {
    const std::lock_guard lock(fetch.mutex);
    fetch.released = true;
    pins.swap(fetch.pins);
    brought = fetch.brought;
  }
  store_.unpin(pins);
  return brought;
}

}  // namespace kvd
