#include "memory/eviction_policy.hpp"

#include <fmt/format.h>

#include "memory/policy_arc.hpp"
#include "memory/policy_lru.hpp"
#include "memory/policy_s3fifo.hpp"
#include "memory/policy_tinylfu.hpp"
#include "memory/policy_weighted_lru.hpp"

namespace kvd {

result<std::unique_ptr<eviction_policy>> make_eviction_policy(std::string_view name) {
  if (name.empty() || name == "weighted-lru") return std::make_unique<weighted_lru_policy>();
  if (name == "lru") return std::make_unique<lru_policy>();
  if (name == "arc") return std::make_unique<arc_policy>();
  if (name == "s3fifo") return std::make_unique<s3fifo_policy>();
  if (name == "tinylfu") return std::make_unique<tinylfu_policy>();
  return fail(
      errc::invalid_argument,
      fmt::format(
          "eviction policy \"{}\" is unknown; known are weighted-lru, lru, arc, s3fifo, tinylfu",
          name));
}

}  // namespace kvd
