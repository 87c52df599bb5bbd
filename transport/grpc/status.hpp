#pragma once
// kvd's errors as gRPC statuses, with the texts that PegaFlow's client and users know.

#include <string_view>

#include <grpcpp/support/status.h>

#include "core/error.hpp"

namespace kvd {

grpc::Status to_status(const error& failure);

// What a refused call of ours means. FAILED_PRECONDITION is instance_missing, UNIMPLEMENTED is
// not_configured; a deadline is cancelled.
error from_status(std::string_view method, const grpc::Status& status);

}  // namespace kvd
