#include "actors/sharing_watch.hpp"

#include <map>
#include <string>

#include "core/log.hpp"

namespace kvd {

std::size_t sharing_watch::look(const instance_table& instances) {
  const auto all = instances.all();
  std::map<std::string, int> busy;  // instances of a namespace that have asked for enough
  std::set<std::uint64_t> alive;
  const auto asks = [](const instance& of) {
    return of.life->blocks_asked.value() >= blocks_asked_min;
  };
  for (const auto& each : all) {
    alive.insert(each->serial);
    if (asks(*each)) ++busy[each->namespace_name];
  }
  std::erase_if(named_, [&](std::uint64_t serial) { return !alive.contains(serial); });
  std::size_t count = 0;
  for (const auto& each : all) {
    if (!asks(*each) || busy[each->namespace_name] < 2) continue;
    if (each->life->foreign_hits.value() > 0 || !named_.insert(each->serial).second) continue;
    log::warn(
        "cache",
        "instance={} of namespace={} asked for {} blocks and found none that another instance "
        "saved; if its replicas serve the same prompts, give all of them the same "
        "PYTHONHASHSEED",
        each->id, each->namespace_name, each->life->blocks_asked.value());
    ++count;
  }
  return count;
}

}  // namespace kvd
