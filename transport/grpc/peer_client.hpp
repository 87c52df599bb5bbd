#pragma once
// kvd.Peer of another server over gRPC.

#include <memory>
#include <string>

#include "transport/peer/peer_calls.hpp"

namespace kvd {

// `node` is "host:port"; `self` is our boot id, for the other's log.
std::unique_ptr<peer_calls> connect_peer(const std::string& node, const std::string& self);

}  // namespace kvd
