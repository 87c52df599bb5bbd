#pragma once
// kvd's errors as gRPC statuses, with the texts that PegaFlow's client and users know.

#include <grpcpp/support/status.h>

#include "core/error.hpp"

namespace kvd {

grpc::Status to_status(const error& failure);

}  // namespace kvd
