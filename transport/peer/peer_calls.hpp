#pragma once
// What a server asks of one other server before it reads from its pool.
//
//   hello -> address of the pool -> lock -> read (peer_port.hpp) -> unlock
//
// Answers come once, on any thread, by the call's deadline. instance_missing: it is another run
// than the one that was meant; say hello again. not_configured: it is no kvd server, or shares
// nothing. The destructor answers what is outstanding with `cancelled` first.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "memory/topology.hpp"

namespace kvd {

struct peer_hello {
  std::string boot_id;
  std::string address;  // for peer_port::open()
};

struct peer_lock_request {
  std::string boot_id;  // whom it is meant for
  std::string name_space;
  std::uint32_t group = 0;
  layout_fingerprint fingerprint;
  std::vector<std::string> hashes;
};

struct peer_lock {
  std::string session;
  duration timeout{};                    // from before it was asked for
  std::vector<std::uint32_t> positions;  // ascending, of the request
  // Where each part of each of these begins in the holder's pool, in units of
  // limits::pool_unit_bytes; parts of a block adjoin in this list.
  std::vector<std::uint32_t> units;
};

class peer_calls {
public:
  template<class T>
  using done = std::function<void(result<T>)>;
  virtual ~peer_calls() = default;

  virtual void hello(done<peer_hello> answer) = 0;
  virtual void lock(peer_lock_request what, duration timeout, done<peer_lock> answer) = 0;
  // Nothing is read under it any more. Not answered: should it get lost, the lock times out.
  virtual void unlock(const std::string& session) = 0;
};

// By the "host:port" of the other's Engine service; never fails, connects when it is first asked.
using peer_calls_factory = std::function<std::unique_ptr<peer_calls>(const std::string& node)>;

}  // namespace kvd
