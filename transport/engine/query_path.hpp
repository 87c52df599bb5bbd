#pragma once
// Answers QueryPrefetch on the calling thread: look up, pin, lease.
//
// Threads: any. Allocates nothing of its own once a thread has warmed up.

#include "engine.pb.h"

#include "core/error.hpp"
#include "memory/block_store.hpp"
#include "memory/lease_table.hpp"
#include "memory/lower_tier.hpp"
#include "transport/engine/instance.hpp"

namespace kvd {

// Told of every Ready group-0 answer: what an infinite cache would have known (hit ceiling).
class lookup_observer {
public:
  virtual ~lookup_observer() = default;
  virtual void looked_up(std::string_view namespace_name, hash_list asked,
                         std::size_t leading_hits) noexcept = 0;
};

class query_path {
public:
  // The references outlive it; `observer` and `below` (the tier under RAM) may be null.
  query_path(block_store& store, lease_table& leases, lookup_observer* observer,
             lower_tier* below = nullptr)
      : store_(store), leases_(leases), observer_(observer), below_(below) {}

  // Fills `answer` with Ready, or with Loading while a tier below fetches. invalid_argument for a
  // bad request; a miss is never an error.
  result<void> query(const instance& of, const pegaflow::QueryRequest& request,
                     pegaflow::QueryResponse& answer);

private:
  result<void> prefix(const instance& of, const pegaflow::QueryRequest& request,
                      pegaflow::QueryResponse& answer);
  result<void> ready(const instance& of, const pegaflow::QueryRequest& request, std::size_t hits,
                     brought_up fetched, pegaflow::QueryReady& answer);
  result<void> members(const instance& of, const pegaflow::QueryRequest& request,
                       pegaflow::QueryReady& answer);
  bool lease(const instance& of, scope_id in, std::span<const block_index> blocks,
             pegaflow::QueryReady& answer);

  block_store& store_;
  lease_table& leases_;
  lookup_observer* observer_;
  lower_tier* below_;
};

}  // namespace kvd
