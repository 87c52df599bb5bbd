#include "core/error.hpp"

namespace kvd {

std::string_view name(errc code) noexcept {
  switch (code) {
  case errc::invalid_argument: return "invalid_argument";
  case errc::instance_missing: return "instance_missing";
  case errc::worker_missing: return "worker_missing";
  case errc::topology_mismatch: return "topology_mismatch";
  case errc::lease_missing: return "lease_missing";
  case errc::storage: return "storage";
  case errc::device: return "device";
  case errc::unavailable: return "unavailable";
  case errc::not_configured: return "not_configured";
  case errc::limit_exceeded: return "limit_exceeded";
  case errc::not_found: return "not_found";
  case errc::permission_denied: return "permission_denied";
  case errc::io: return "io";
  case errc::cancelled: return "cancelled";
  case errc::internal: return "internal";
  }
  return "unknown";
}

}  // namespace kvd
