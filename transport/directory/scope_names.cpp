#include "transport/directory/scope_names.hpp"

#include <fmt/format.h>

namespace kvd {

std::string directory_name_of(const scope& of) {
  return fmt::format("{}#{}-{:016x}{:016x}", of.usage->name, of.group, of.fingerprint.high,
                     of.fingerprint.low);
}

const scope_names::entry& scope_names::known(scope_id in) {
  if (entries_.size() <= in) entries_.resize(in + 1);
  auto& of = entries_[in];
  if (of.name.empty()) {
    of.name = directory_name_of(store_.scope_of(in));
    of.space = directory_namespace(of.name);
  }
  return of;
}

}  // namespace kvd
