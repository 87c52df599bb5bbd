#include "transport/grpc/status.hpp"

#include <fmt/format.h>

namespace kvd {

namespace {

errc code_of(grpc::StatusCode code) noexcept {
  switch (code) {
  case grpc::StatusCode::INVALID_ARGUMENT: return errc::invalid_argument;
  case grpc::StatusCode::FAILED_PRECONDITION: return errc::instance_missing;
  case grpc::StatusCode::RESOURCE_EXHAUSTED: return errc::limit_exceeded;
  case grpc::StatusCode::UNAVAILABLE: return errc::unavailable;
  case grpc::StatusCode::UNIMPLEMENTED: return errc::not_configured;
  case grpc::StatusCode::NOT_FOUND: return errc::not_found;
  case grpc::StatusCode::DEADLINE_EXCEEDED:
  case grpc::StatusCode::CANCELLED: return errc::cancelled;
  default: return errc::internal;
  }
}

}  // namespace

error from_status(std::string_view method, const grpc::Status& status) {
  return {code_of(status.error_code()),
          fmt::format("{} was refused with gRPC status {}: {}", method,
                      static_cast<int>(status.error_code()), status.error_message())};
}

grpc::Status to_status(const error& failure) {
  const auto make = [&](grpc::StatusCode code, std::string_view prefix) {
    return grpc::Status(code, std::string(prefix) + failure.detail);
  };
  switch (failure.code) {
  case errc::invalid_argument:
    return make(grpc::StatusCode::INVALID_ARGUMENT, "invalid argument: ");
  case errc::instance_missing:
  case errc::worker_missing:
  case errc::lease_missing:
  case errc::not_configured: return make(grpc::StatusCode::FAILED_PRECONDITION, "");
  case errc::topology_mismatch:
    return make(grpc::StatusCode::FAILED_PRECONDITION, "topology mismatch: ");
  case errc::storage: return make(grpc::StatusCode::INTERNAL, "storage error: ");
  case errc::device:
  case errc::io:
  case errc::internal: return make(grpc::StatusCode::INTERNAL, "");
  case errc::unavailable: return make(grpc::StatusCode::UNAVAILABLE, "");
  case errc::limit_exceeded: return make(grpc::StatusCode::RESOURCE_EXHAUSTED, "");
  case errc::not_found: return make(grpc::StatusCode::NOT_FOUND, "");
  case errc::permission_denied: return make(grpc::StatusCode::PERMISSION_DENIED, "");
  case errc::cancelled: return make(grpc::StatusCode::CANCELLED, "");
  }
  return make(grpc::StatusCode::UNKNOWN, "");
}

}  // namespace kvd
