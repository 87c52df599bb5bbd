#pragma once
// Answers of other nodes, read as what comes from outside: whatever they hold, nothing beyond the
// question comes out. Pure; any thread.

#include <cstddef>
#include <string>

#include "metaserver.pb.h"
#include "peer.pb.h"

#include "core/error.hpp"
#include "transport/directory/directory_link.hpp"
#include "transport/peer/peer_calls.hpp"

namespace kvd {

// `asked`: how many hashes the question had. Runs that do not fit it are dropped or cut.
located_blocks read_located(const LocateResponse& answer, std::size_t asked);
// PegaFlow's answer, a leading run for each node, cut into runs of equal owners, the node with the
// longest run first; without `self`.
located_blocks read_located(const pegaflow::QueryPrefixBlocksResponse& answer,
                            const std::string& self, std::size_t asked);

// internal: the answer does not add up, so nothing of it is used.
result<peer_lock> read_lock(LockResponse&& answer, std::size_t asked);

}  // namespace kvd
