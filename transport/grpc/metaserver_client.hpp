#pragma once
// A metaserver over gRPC, as announcer and look-ups use it.
//
// Two connections: one carries heartbeats and look-ups, which then never wait behind a thousand
// hashes; the other what changes the directory. A connection that cannot be made is tried anew
// every half second to two seconds. Speaks pegaflow.MetaServer, and kvd.Directory where there is
// one.

#include <memory>
#include <string>

#include "transport/directory/directory_link.hpp"

namespace kvd {

struct metaserver_identity {
  std::string node;     // "host:port" by which other nodes reach our Engine service
  std::string node_id;  // UUID text of this run
};

// `address` is host:port. Nothing is connected yet; never fails.
std::unique_ptr<directory_link> connect_metaserver(const std::string& address,
                                                   const metaserver_identity& self);

}  // namespace kvd
