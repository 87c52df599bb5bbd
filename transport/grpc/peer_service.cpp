#include "transport/grpc/peer_service.hpp"

#include "core/log.hpp"
#include "transport/grpc/status.hpp"

namespace kvd {

namespace {

grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* call, const grpc::Status& status) {
  auto* reply = call->DefaultReactor();
  reply->Finish(status);
  return reply;
}

grpc::Status shares_nothing() {
  return {grpc::StatusCode::UNIMPLEMENTED,
          "this server has no --metaserver-addr, so it shares nothing"};
}

}  // namespace

grpc::ServerUnaryReactor* peer_service::Hello(grpc::CallbackServerContext* call,
                                              const HelloRequest*, HelloResponse* response) {
  if (desk_ == nullptr) return finish(call, shares_nothing());
  desk_->hello(*response);
  log::info("peer", "{} asked how to reach this pool", call->peer());
  return finish(call, grpc::Status::OK);
}

grpc::ServerUnaryReactor* peer_service::Lock(grpc::CallbackServerContext* call,
                                             const LockRequest* request, LockResponse* response) {
  if (desk_ == nullptr) return finish(call, shares_nothing());
  const auto locked = desk_->lock(*request, *response);
  return finish(call, locked ? grpc::Status::OK : to_status(locked.error()));
}

grpc::ServerUnaryReactor* peer_service::Unlock(grpc::CallbackServerContext* call,
                                               const UnlockRequest* request,
                                               UnlockResponse* response) {
  if (desk_ == nullptr) return finish(call, shares_nothing());
  desk_->unlock(*request, *response);
  return finish(call, grpc::Status::OK);
}

}  // namespace kvd
