#pragma once
// Notices replicas that never find each other's blocks although they share a namespace.
//
// The usual cause is a random hash seed: vLLM chains block hashes from PYTHONHASHSEED, and without
// one every process starts from another root, so nothing is ever shared and nobody is told. An
// instance that asked for many blocks, none of whose hits another instance had saved, is named in
// the log, once. Owner: the CACHE actor.

#include <cstdint>
#include <set>

#include "transport/engine/instance.hpp"

namespace kvd {

class sharing_watch {
public:
  // Blocks that an instance must have asked for before silence means something.
  static constexpr std::uint64_t blocks_asked_min = 10'000;

  // Returns how many instances it named.
  std::size_t look(const instance_table& instances);

private:
  std::set<std::uint64_t> named_;  // serials; those of gone instances are forgotten
};

}  // namespace kvd
