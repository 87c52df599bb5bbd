#include "transport/peer/peer_port.hpp"

namespace kvd {

std::string_view name(peer_outcome outcome) noexcept {
  switch (outcome) {
  case peer_outcome::done: return "done";
  case peer_outcome::timed_out: return "timed_out";
  case peer_outcome::unreachable: return "unreachable";
  case peer_outcome::link_lost: return "link_lost";
  case peer_outcome::refused: return "refused";
  case peer_outcome::cancelled: return "cancelled";
  case peer_outcome::stopped: return "stopped";
  case peer_outcome::count: break;
  }
  return "unknown";
}

std::string_view name(peer_link_kind kind) noexcept {
  switch (kind) {
  case peer_link_kind::mapped: return "mapped";
  case peer_link_kind::tcp: return "tcp";
  case peer_link_kind::rdma: return "rdma";
  case peer_link_kind::count: break;
  }
  return "unknown";
}

}  // namespace kvd
