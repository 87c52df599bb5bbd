#pragma once
// The directory: which node holds which block. What the metaserver's services ask and tell.
//
// A node is an address, "host:port" of its Engine service; a session is one run of it, named by a
// UUID. A session is fresh while it was heard of within the stale time; blocks of one that is not
// are hidden, and come back when it is heard of again. A block that is hidden is never an answer.
//
// Two stores can stand behind this: directory_store (this process' memory; nothing blocks for more
// than a short lock), and one over the network. blocking() says which; a service then calls from
// threads that may wait.
//
// Errors
//   invalid_argument   no UUID, sizes and counts beyond core/limits.hpp
//   instance_missing   "unknown node", or "stale node session": another run has the address
//   limit_exceeded     the directory is full (of nodes, of owners); detail says of what
//   unavailable        the store behind it does not answer
// Threads: any, at once.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace kvd {

// Hashes as they lie in the request, not copied.
using block_hashes = std::span<const std::string* const>;

struct node_session {
  std::string_view node;     // "host:port"
  std::string_view node_id;  // UUID text
};

struct inserted_blocks {
  std::uint64_t added = 0;  // of which this session was no owner before
  // Positions at which this session is a new owner and at least the third that is visible.
  std::vector<std::uint32_t> reclaimable;
};

struct node_prefix {
  std::string node;
  std::uint32_t length;  // leading hashes that it holds without a gap, at least 1
};

// Neighbouring positions with the same owners.
struct located_run {
  std::uint32_t first;
  std::uint32_t count;
  std::vector<std::uint32_t> owners;  // into located_blocks::nodes, heard of last first
};

struct located_blocks {
  std::vector<std::string> nodes;
  std::vector<located_run> runs;
};

struct namespace_blocks {
  std::string_view name_space;
  block_hashes hashes;
};

struct replaced_blocks {
  std::uint64_t inserted = 0;
  std::uint64_t removed = 0;
};

enum class node_state : std::uint8_t { fresh, stale, leaving };

struct directory_node {
  std::string node;
  std::string node_id;
  node_state state;
  std::uint64_t owners;     // blocks it is known to hold
  double seen_seconds_ago;  // since it was last heard of
};

// All numbers since the start of the directory, or now.
struct directory_usage {
  std::uint64_t keys = 0;    // blocks that somebody holds, hidden ones included
  std::uint64_t owners = 0;  // (block, node) records
  std::uint64_t owners_max = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t nodes_fresh = 0;
  std::uint64_t nodes_stale = 0;
  std::uint64_t nodes_leaving = 0;   // forgotten, their blocks are being removed
  std::uint64_t refused_owners = 0;  // inserts for which there was no room
  // Of the last sweep: keys with 1, 2, 3, and 4 or more visible owners; owners of these on average.
  std::array<std::uint64_t, 4> redundancy{};
  double redundancy_mean = 0;
  std::uint64_t sweeps = 0;
  std::uint64_t swept_owners = 0;
  std::uint64_t swept_keys = 0;
  std::uint64_t swept_nodes = 0;
};

struct purged_nodes {
  std::vector<std::string> nodes;
  std::uint64_t owners = 0;
};

class directory {
public:
  virtual ~directory() = default;

  // True: calls may wait for a network; make them where waiting is allowed.
  virtual bool blocking() const noexcept = 0;
  // Changes when the directory starts empty.
  virtual const std::string& id() const noexcept = 0;

  // A session says that it lives. Another run of a node that is fresh is refused.
  virtual result<void> heartbeat(const node_session& from) = 0;
  // Its blocks are no answers any more when this returns; how many they were.
  virtual result<std::uint64_t> unregister(const node_session& from) = 0;

  // Both count as signs of life. A block that is already known is known again from now on.
  virtual result<inserted_blocks> insert(const node_session& from, std::string_view name_space,
                                         block_hashes hashes) = 0;
  // How many this session was an owner of.
  virtual result<std::uint64_t> remove(const node_session& from, std::string_view name_space,
                                       block_hashes hashes) = 0;

  // For each node that holds the first hash. Stops where no single node goes on.
  virtual result<std::vector<node_prefix>> query_prefix(std::string_view name_space,
                                                        block_hashes hashes) = 0;
  // By runs, of all nodes but `except` together. Stops at the first hash that nobody holds, unless
  // it goes on over gaps.
  virtual result<located_blocks> locate(std::string_view name_space, block_hashes hashes,
                                        std::string_view except, bool over_gaps) = 0;

  // Buckets (directory_digest) in which `digests` differ from what is known of the session. Blocks
  // of the others count as registered now.
  virtual result<std::vector<std::uint32_t>> compare(const node_session& from,
                                                     std::span<const std::uint64_t> digests) = 0;
  // In these buckets the session holds exactly these blocks. Blocks that stay are visible all the
  // time. invalid_argument: a block lies in none of the buckets.
  virtual result<replaced_blocks> replace(const node_session& from,
                                          std::span<const std::uint32_t> buckets,
                                          std::span<const namespace_blocks> blocks) = 0;

  // One slice of what is in no hurry: forgetting blocks of sessions that are gone, and a sweep that
  // was begun. True: there is more to do. One thread.
  virtual bool upkeep() = 0;
  // From now on upkeep() also drops what is older than its time to live, and sessions that were
  // silent for that long, and counts redundancy. Nothing while a sweep runs. One thread, the same.
  virtual void begin_sweep() = 0;
  // Forgets all sessions that are stale now.
  virtual result<purged_nodes> purge_stale() = 0;

  virtual std::vector<directory_node> nodes() const = 0;
  virtual directory_usage usage() const = 0;
};

}  // namespace kvd
