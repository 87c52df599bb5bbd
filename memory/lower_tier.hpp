#pragma once
// What the query path asks of the tiers below RAM: bring up the rest of a prefix.
//
// A query that RAM cannot answer in full starts a fetch and is answered Loading; the client asks
// again with the same id until the fetch is over, and then gets what RAM holds by then.
//
// Threads: any; nothing here waits for I/O.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "memory/block_store.hpp"

namespace kvd {

struct query_id {
  std::uint64_t instance = 0;  // serial
  std::string_view request;
  std::uint32_t group = 0;
};

class lower_tier {
public:
  enum class progress : std::uint8_t { none, loading, over };
  virtual ~lower_tier() = default;

  // How the fetch of this query stands.
  virtual progress poll(const query_id& id) noexcept = 0;
  // Starts to fetch what follows the first pinned.size() of `asked`, or with `whole` everything of
  // `asked` that RAM lacks if nothing is missing below. True: it runs, and the pins are the tier's
  // to give back. False: there is nothing to fetch, or no room for more fetches.
  virtual bool fetch(const query_id& id, scope_id in, hash_list asked,
                     std::span<const block_index> pinned, bool whole) = 0;
  // The query is being answered and has pins of its own: forgets the fetch. Returns what it
  // brought up.
  virtual brought_up settle(const query_id& id) noexcept = 0;
};

// A tier that knows at once which blocks it has.
class stored_tier : public lower_tier {
public:
  virtual bool holds(scope_id in, std::string_view hash) const noexcept = 0;
};

}  // namespace kvd
