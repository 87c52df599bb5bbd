#pragma once
// Feeds the hit ceiling with what queries asked for and did not find.

#include "memory/hit_ceiling.hpp"
#include "transport/engine/query_path.hpp"

namespace kvd {

class ceiling_observer final : public lookup_observer {
public:
  // `ceiling` outlives it.
  explicit ceiling_observer(hit_ceiling& ceiling) : ceiling_(ceiling) {}

  void looked_up(std::string_view namespace_name, hash_list asked,
                 std::size_t leading_hits) noexcept override {
    auto counted = ceiling_.begin(namespace_name, asked.size());
    for (const auto* hash : asked.subspan(leading_hits))
      counted.miss(*hash);
  }

private:
  hit_ceiling& ceiling_;
};

}  // namespace kvd
