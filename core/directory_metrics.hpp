#pragma once
// Every number that the metaserver role counts itself; what its store knows is in directory_usage
// (memory/directory.hpp). Names and HELP texts are in actors/metaserver_metrics.cpp.

#include <array>

#include "core/metric.hpp"
#include "core/server_metrics.hpp"

namespace kvd {

// transport/grpc: methods of pegaflow.MetaServer, then those of kvd.Directory.
enum class directory_method : std::uint8_t {
  heartbeat_node,
  unregister_node,
  insert_block_hashes,
  remove_block_hashes,
  query_prefix_blocks,
  describe,
  locate,
  compare,
  replace,
  count
};

struct directory_rpc_metrics {
  static constexpr std::size_t methods = static_cast<std::size_t>(directory_method::count);
  static constexpr std::size_t statuses = rpc_metrics::statuses;
  std::array<std::array<counter, statuses>, methods> requests;
  std::array<rpc_metrics::by_outcome, methods> seconds;
};

struct metaserver_metrics {
  directory_rpc_metrics rpc;
  control_metrics control;
  counter inserted;           // hashes of answered inserts
  counter removed;            // owner records that removals took out
  counter queried;            // hashes of prefix queries and look-ups
  counter reclaimable;        // hints that a block has three owners or more
  counter differing_buckets;  // that comparing found
  counter replaced_added;     // records that replacing put in: announcements that were lost
  counter replaced_removed;
};

}  // namespace kvd
