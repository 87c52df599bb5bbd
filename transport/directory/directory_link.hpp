#pragma once
// One metaserver as a server sees it: calls out, answers back.
//
// A block is named there by the directory name of its scope and by its hash. Answers come once, on
// any thread, by the call's deadline. Error classes: instance_missing, the metaserver does not know
// this run of this node, so say a heartbeat; not_configured, it is PegaFlow's and has no such call;
// limit_exceeded, it is full; unavailable or cancelled, it does not answer.
//
// Owner: the announcer. The destructor answers what is outstanding with `cancelled` first.

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "memory/directory.hpp"

namespace kvd {

template<class T>
using directory_done = std::function<void(result<T>)>;

struct directory_facts {
  std::string id;  // equal ids: one directory
  std::chrono::seconds stale_after{30};
};

// Blocks of one directory name.
struct named_blocks {
  std::string name;
  std::vector<std::string> hashes;
};

class directory_link {
public:
  virtual ~directory_link() = default;

  virtual const std::string& address() const noexcept = 0;

  virtual void describe(directory_done<directory_facts> done) = 0;
  // Answers how long the node is believed to live without another one.
  virtual void heartbeat(directory_done<std::chrono::seconds> done) = 0;
  virtual void farewell(directory_done<void> done) = 0;

  // Answers hashes of which enough others hold copies.
  virtual void insert(named_blocks blocks, directory_done<std::vector<std::string>> done) = 0;
  virtual void remove(named_blocks blocks, directory_done<void> done) = 0;
  // Answers which buckets of directory_digest differ.
  virtual void compare(std::span<const std::uint64_t> digests,
                       directory_done<std::vector<std::uint32_t>> done) = 0;
  // In these buckets this node holds exactly these blocks.
  virtual void replace(std::vector<std::uint32_t> buckets, std::vector<named_blocks> blocks,
                       directory_done<void> done) = 0;

  // Without ourselves. PegaFlow's metaserver knows leading runs of each node only.
  virtual void locate(named_blocks blocks, bool over_gaps, duration timeout,
                      directory_done<located_blocks> done) = 0;
};

}  // namespace kvd
