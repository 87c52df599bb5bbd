#include "transport/peer/stream_link.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace kvd {

namespace {

constexpr std::size_t lanes_max = 8;
// Asked for on one connection and not arrived: enough to fill 25 Gbit/s over 5 ms.
constexpr std::uint64_t lane_bytes_max = 16 << 20;
// A holder that sent nothing for so long while asked hangs, or its network does.
constexpr std::chrono::milliseconds stall{500};

}  // namespace

stream_link::stream_link(event_loop& loop, link_events& events, const clock& time, target to,
                         std::vector<socket_address> from)
    : loop_(loop), events_(events), time_(time), to_(std::move(to)), from_(std::move(from)) {
  const auto count =
      std::clamp(std::max(to_.hosts.size(), from_.size()), std::size_t{1}, lanes_max);
  for (std::size_t i = 0; i < count; ++i) {
    lane next;
    next.connection =
        std::make_unique<stream_connection>(loop_, static_cast<link_events&>(*this), time_);
    next.host = i % to_.hosts.size();
    if (!from_.empty()) next.from = &from_[i % from_.size()];
    lanes_.push_back(std::move(next));
  }
}

void stream_link::connect(time_point deadline) noexcept {
  connect_deadline_ = deadline;
  for (auto& each : lanes_)
    start(each);
}

void stream_link::start(lane& of) noexcept {
  const auto& alternatives = to_.hosts[of.host];
  while (of.alternative < alternatives.size()) {
    const auto& to = alternatives[of.alternative++];
    if (of.connection->connect(to, of.from, to_.greeting)) return;
  }
}

std::size_t stream_link::connections_up() const noexcept {
  return static_cast<std::size_t>(std::count_if(lanes_.begin(), lanes_.end(), [](const lane& l) {
    return l.connection->now() == stream_connection::state::up;
  }));
}

stream_connection* stream_link::least_busy() const noexcept {
  stream_connection* best = nullptr;
  for (const auto& each : lanes_) {
    auto* const next = each.connection.get();
    if (next->now() != stream_connection::state::up || next->broken() || each.stalled) continue;
    if (best == nullptr || next->outstanding() < best->outstanding()) best = next;
  }
  return best;
}

bool stream_link::ready() const noexcept {
  if (closing_ || down_) return false;
  const auto* const best = least_busy();
  return best != nullptr && best->outstanding() < lane_bytes_max;
}

void stream_link::submit(peer_transfer& transfer) noexcept {
  auto* const best = least_busy();
  assert(best != nullptr);
  best->submit(transfer);
}

bool stream_link::abandon(peer_transfer& transfer, time_point now) noexcept {
  for (auto& each : lanes_) {
    if (each.connection.get() != transfer.link_state) continue;
    each.connection->abandon(transfer);
    if (now - each.connection->last_byte() >= stall) each.stalled = true;
  }
  return true;
}

void stream_link::transfer_over(peer_transfer& transfer, transfer_end end) noexcept {
  // The read may go on over another connection.
  if (end == transfer_end::lost && !closing_ && connections_up() > 0) end = transfer_end::again;
  events_.transfer_over(transfer, end);
}

time_point stream_link::tick(time_point now) noexcept {
  using state = stream_connection::state;
  if (down_) return time_point::max();
  bool any = false;
  bool connecting = false;
  for (auto& each : lanes_) {
    auto& connection = *each.connection;
    if (closing_ && connection.now() != state::down) {
      connection.fail(transfer_end::lost, "closed");
    } else if (connection.broken() && connection.now() == state::up) {
      connection.fail(transfer_end::lost, "the connection ended while a request was sent");
    } else if (each.stalled && connection.now() == state::up) {
      connection.fail(transfer_end::again, "the holder sends nothing");
    }
    const bool dialling =
        connection.now() == state::connecting || connection.now() == state::greeting;
    if (dialling && now >= connect_deadline_) connection.fail(transfer_end::lost, connection.why());
    refused_ = refused_ || connection.refused();
    if (connection.now() == state::down && !up_ && !closing_ && now < connect_deadline_) {
      start(each);
    }
    if (connection.now() == state::down) why_ = connection.why();
    any = any || connection.now() != state::down;
    connecting = connecting || (connection.now() != state::down && connection.now() != state::up);
  }
  if (!up_ && connections_up() > 0) {
    up_ = true;
    events_.link_up();
  }
  if (!any) {
    down_ = true;
    const auto never = refused_ ? peer_outcome::refused : peer_outcome::unreachable;
    events_.link_down(up_ ? peer_outcome::link_lost : never, why_);
    return time_point::max();
  }
  return connecting ? connect_deadline_ : time_point::max();
}

}  // namespace kvd
