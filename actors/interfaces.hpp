#pragma once
// Every actor and every message of the server role, in one place. Read this first.
//
// ENGINE owns registrations and sessions: which instances exist, what they wait for to close.
// CACHE owns upkeep of the block store: background eviction, expiry, cleanup.
// SSD owns the life of the SSD tier: which fetches are given up, when it is switched on again.
// REGISTRAR owns what metaservers are told. PEER owns what is fetched from other nodes, and the age
// of the locks that they hold here.
// METASERVER owns upkeep of the directory: sweeps, and forgetting nodes, slice by slice.
//
// Senders are gRPC, HTTP and copy threads, so answers travel as `reply` objects inside the messages
// (they answer themselves when dropped) and no message needs a CAF response. No message carries
// block bytes, and none is sent per block.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/replies_to.hpp>
#include <caf/type_id.hpp>
#include <caf/typed_actor.hpp>

#include "actors/reply.hpp"
#include "memory/block_store.hpp"
#include "memory/directory.hpp"

namespace pegaflow {
class RegisterContextRequest;
}

namespace kvd {

struct removed_instances {
  std::vector<std::string> ids;
  std::uint64_t tensors = 0;
};

namespace message {

// A worker wants to join its instance. The request lives until the answer.
struct register_worker {
  const pegaflow::RegisterContextRequest* request;
  reply<void> answer;
};
// Remove an instance; answered when no copy of it runs any more.
struct unregister {
  std::string instance_id;
  reply<void> answer;
};
// A session stream of an instance began, or ended.
struct session_opened {
  std::string instance_id;
  std::uint64_t token;
};
struct session_closed {
  std::string instance_id;
  std::uint64_t token;
};
// The last operation of a closing instance ended.
struct instance_idle {
  std::uint64_t serial;
};
// Remove one instance (or all when the id is empty) on an operator's word.
struct cleanup_instances {
  std::string instance_id;
  reply<removed_instances> answer;
};
// The pool is nearly full.
struct trim {};
// Upkeep is due; CACHE sends it to itself.
struct tick {};
// Drop all resident blocks on an operator's word.
struct cleanup_memory {
  reply<block_store::cleanup> answer;
};
// An instance is gone: nobody waits for its fetches.
struct instance_gone {
  std::uint64_t serial;
};
// Work of the class that an actor keeps: an answer came, or a query asks.
struct run {
  std::function<void()> task;
};
// More of the directory's upkeep is due; METASERVER sends it to itself.
struct slice {};
// Forget the nodes that are stale, on an operator's word.
struct purge_nodes {
  reply<purged_nodes> answer;
};
// No more work comes; the actor ends.
struct stop {};

}  // namespace message

using engine_actor =
    caf::typed_actor<caf::reacts_to<message::register_worker>, caf::reacts_to<message::unregister>,
                     caf::reacts_to<message::session_opened>,
                     caf::reacts_to<message::session_closed>,
                     caf::reacts_to<message::instance_idle>,
                     caf::reacts_to<message::cleanup_instances>, caf::reacts_to<message::stop>>;

using cache_actor =
    caf::typed_actor<caf::reacts_to<message::trim>, caf::reacts_to<message::tick>,
                     caf::reacts_to<message::cleanup_memory>, caf::reacts_to<message::stop>>;

using ssd_actor =
    caf::typed_actor<caf::reacts_to<message::tick>, caf::reacts_to<message::instance_gone>,
                     caf::reacts_to<message::stop>>;

using registrar_actor =
    caf::typed_actor<caf::reacts_to<message::tick>, caf::reacts_to<message::run>,
                     caf::reacts_to<message::stop>>;

using peer_actor =
    caf::typed_actor<caf::reacts_to<message::tick>, caf::reacts_to<message::run>,
                     caf::reacts_to<message::instance_gone>, caf::reacts_to<message::stop>>;
using metaserver_actor =
    caf::typed_actor<caf::reacts_to<message::tick>, caf::reacts_to<message::slice>,
                     caf::reacts_to<message::purge_nodes>, caf::reacts_to<message::stop>>;

}  // namespace kvd

CAF_BEGIN_TYPE_ID_BLOCK(kvd, first_custom_type_id)
CAF_ADD_TYPE_ID(kvd, (kvd::message::register_worker))
CAF_ADD_TYPE_ID(kvd, (kvd::message::unregister))
CAF_ADD_TYPE_ID(kvd, (kvd::message::session_opened))
CAF_ADD_TYPE_ID(kvd, (kvd::message::session_closed))
CAF_ADD_TYPE_ID(kvd, (kvd::message::instance_idle))
CAF_ADD_TYPE_ID(kvd, (kvd::message::cleanup_instances))
CAF_ADD_TYPE_ID(kvd, (kvd::message::trim))
CAF_ADD_TYPE_ID(kvd, (kvd::message::tick))
CAF_ADD_TYPE_ID(kvd, (kvd::message::cleanup_memory))
CAF_ADD_TYPE_ID(kvd, (kvd::message::instance_gone))
CAF_ADD_TYPE_ID(kvd, (kvd::message::run))
CAF_ADD_TYPE_ID(kvd, (kvd::message::slice))
CAF_ADD_TYPE_ID(kvd, (kvd::message::purge_nodes))
CAF_ADD_TYPE_ID(kvd, (kvd::message::stop))
CAF_END_TYPE_ID_BLOCK(kvd)

// All messages stay inside the process: they carry pointers and answers.
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::register_worker)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::unregister)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::session_opened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::session_closed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::instance_idle)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::cleanup_instances)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::trim)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::tick)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::cleanup_memory)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::instance_gone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::run)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::slice)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::purge_nodes)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kvd::message::stop)
