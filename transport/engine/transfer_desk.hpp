#pragma once
// The holder's side of a transfer: says how its pool is reached, and locks blocks for others.
//
// Threads: any. Owner: the node; the references outlive it.

#include <string>

#include "peer.pb.h"

#include "core/error.hpp"
#include "memory/block_store.hpp"
#include "memory/transfer_locks.hpp"

namespace kvd {

class transfer_desk {
public:
  // `address` is peer_port::address() of this run.
  transfer_desk(block_store& store, transfer_locks& locks, std::string boot_id, std::string address)
      : store_(store), locks_(locks), boot_id_(std::move(boot_id)), address_(std::move(address)) {}

  void hello(HelloResponse& answer) const;
  // Blocks that are not here, or have another layout, are left out. instance_missing: the caller
  // means another run of this node. invalid_argument: a hash has an impossible size.
  result<void> lock(const LockRequest& request, LockResponse& answer);
  void unlock(const UnlockRequest& request, UnlockResponse& answer);

private:
  block_store& store_;
  transfer_locks& locks_;
  const std::string boot_id_;
  const std::string address_;
};

}  // namespace kvd
