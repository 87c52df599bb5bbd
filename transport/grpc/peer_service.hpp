#pragma once
// kvd.Peer on the server's own port: what other servers ask before they read from its pool.

#include "peer.grpc.pb.h"

#include "transport/engine/transfer_desk.hpp"

namespace kvd {

class peer_service final : public Peer::CallbackService {
public:
  // `desk` outlives it; null: this server shares nothing, and says so.
  explicit peer_service(transfer_desk* desk) : desk_(desk) {}

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* call, const HelloRequest* request,
                                  HelloResponse* response) override;
  grpc::ServerUnaryReactor* Lock(grpc::CallbackServerContext* call, const LockRequest* request,
                                 LockResponse* response) override;
  grpc::ServerUnaryReactor* Unlock(grpc::CallbackServerContext* call, const UnlockRequest* request,
                                   UnlockResponse* response) override;

private:
  transfer_desk* desk_;
};

}  // namespace kvd
