#include "transport/peer/loopback_peer.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include <fmt/format.h>

#include "core/limits.hpp"
#include "transport/peer/pool_lookup.hpp"

namespace kvd {

namespace {

constexpr std::string_view loopback_prefix = "loopback:";

class loopback_remote final : public peer_remote {
public:
  explicit loopback_remote(std::string boot_id) : boot_id_(std::move(boot_id)) {}
  std::string_view boot_id() const noexcept override { return boot_id_; }
  peer_link_kind kind() const noexcept override { return peer_link_kind::mapped; }
  bool connected() const noexcept override { return true; }

private:
  std::string boot_id_;
};

std::uint64_t bytes_of(const peer_read& read) noexcept {
  std::uint64_t bytes = 0;
  for (const auto& piece : read.pieces)
    bytes += piece.bytes;
  return bytes;
}

std::int64_t missing_bytes(const peer_read& read) noexcept {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < read.pieces.size(); ++i) {
    if (read.states[i] == piece_state::missing) {
      bytes += static_cast<std::int64_t>(read.pieces[i].bytes);
    }
  }
  return bytes;
}

}  // namespace

void loopback_network::script(const std::string& reader, const std::string& holder,
                              loopback_fault fault) {
  scripts_[{reader, holder}].push_back(fault);
}

void loopback_network::always(const std::string& reader, const std::string& holder,
                              loopback_fault fault) {
  rules_[{reader, holder}] = fault;
}

loopback_fault loopback_network::fault_for(const pair& nodes) {
  if (auto at = scripts_.find(nodes); at != scripts_.end() && !at->second.empty()) {
    const auto fault = at->second.front();
    at->second.pop_front();
    return fault;
  }
  const auto rule = rules_.find(nodes);
  return rule == rules_.end() ? loopback_fault{} : rule->second;
}

time_point loopback_network::due(const running& of) const {
  if (of.ended) return of.release;
  if (of.read->cancel_asked.load()) return time_point::min();
  const bool holder_gone = !peers_.contains(of.holder);
  if (of.arrived && !holder_gone) return of.read->deadline;
  return std::min(of.arrival, of.read->deadline);
}

std::optional<time_point> loopback_network::next_due() const {
  std::optional<time_point> first;
  for (const auto& of : reads_) {
    const auto at = due(of);
    if (at != time_point::max() && (!first || at < *first)) first = at;
  }
  return first;
}

std::size_t loopback_network::step() {
  std::size_t events = 0;
  for (;;) {
    auto first = reads_.end();
    for (auto at = reads_.begin(); at != reads_.end(); ++at) {
      if (due(*at) <= time_.now() && (first == reads_.end() || due(*at) < due(*first))) first = at;
    }
    if (first == reads_.end()) return events;
    carry_out(first);
    ++events;
  }
}

void loopback_network::carry_out(std::list<running>::iterator at) {
  auto& of = *at;
  if (of.ended) {
    if (of.fault.what == loopback_fault::kind::late) copy(of, 0, of.read->pieces.size(), false);
    release(at);
    return;
  }
  std::optional<peer_outcome> outcome;
  if (of.read->cancel_asked.load()) {
    outcome = peer_outcome::cancelled;
  } else if (!peers_.contains(of.holder)) {
    outcome = of.arrived ? peer_outcome::link_lost : peer_outcome::unreachable;
  } else if (!of.arrived && of.arrival <= of.read->deadline) {
    of.arrived = true;
    outcome = arrive(of);
  } else {
    outcome = peer_outcome::timed_out;
  }
  if (!outcome) return;
  end(of, *outcome);
  if (of.release <= time_.now()) release(at);
}

std::optional<peer_outcome> loopback_network::arrive(running& of) {
  using kind = loopback_fault::kind;
  const auto& holder = *peers_.at(of.holder);
  for (const auto& piece : of.read->pieces) {
    if (holder.find(piece.offset, piece.bytes) == nullptr) return peer_outcome::refused;
  }
  const auto count = of.read->pieces.size();
  switch (of.fault.what) {
  case kind::none: copy(of, 0, count, true); return peer_outcome::done;
  case kind::unreachable: return peer_outcome::unreachable;
  case kind::refuse: return peer_outcome::refused;
  case kind::lose:
    copy(of, 0, std::min(of.fault.pieces, count), true);
    return peer_outcome::link_lost;
  case kind::hang:
  case kind::late: copy(of, 0, std::min(of.fault.pieces, count), true); return std::nullopt;
  }
  return std::nullopt;
}

// `mark`: they count as arrived. Otherwise only those that never did are written: bytes that the
// caller was told to have do not change.
void loopback_network::copy(running& of, std::size_t first, std::size_t last, bool mark) {
  const auto holder = peers_.find(of.holder);
  if (holder == peers_.end()) return;
  for (auto i = first; i < last; ++i) {
    auto& state = of.read->states[i];
    if (state == piece_state::arrived) continue;
    const auto& piece = of.read->pieces[i];
    const auto* from = holder->second->find(piece.offset, piece.bytes);
    if (from == nullptr) continue;
    std::memcpy(piece.to, from, piece.bytes);
    if (!mark) continue;
    state = piece_state::arrived;
    auto& counted = of.reader->metrics_;
    counted.links[static_cast<std::size_t>(peer_link_kind::mapped)].read_bytes.add(piece.bytes);
    counted.inflight_bytes.add(-static_cast<std::int64_t>(piece.bytes));
  }
}

void loopback_network::end(running& of, peer_outcome outcome) {
  using kind = loopback_fault::kind;
  auto& metrics = of.reader->metrics_;
  const auto missing = missing_bytes(*of.read);
  of.ended = true;
  of.release = time_.now();
  const bool lingers = of.fault.what == kind::hang || of.fault.what == kind::late;
  if (outcome != peer_outcome::done && lingers) of.release += of.fault.late_by;
  metrics.reads[static_cast<std::size_t>(outcome)].add();
  metrics.reads_inflight.add(-1);
  metrics.inflight_bytes.add(-missing);
  metrics.quarantined_bytes.add(missing);
  --of.reader->reads_;
  of.read->on_done(*of.read, outcome);
}

void loopback_network::release(std::list<running>::iterator at) {
  auto& read = *at->read;
  at->reader->metrics_.quarantined_bytes.add(-missing_bytes(read));
  reads_.erase(at);
  read.remote.reset();
  read.on_released(read);
}

loopback_peer::loopback_peer(loopback_network& network, std::string boot_id, const peer_pool& pool,
                             peer_metrics& metrics, std::size_t reads_max)
    : network_(network), boot_id_(std::move(boot_id)),
      address_(std::string(loopback_prefix) + boot_id_), pool_(pool), metrics_(metrics),
      reads_max_(reads_max) {
  assert(!boot_id_.empty() && boot_id_.size() <= 64 && !network.peers_.contains(boot_id_));
  network_.peers_[boot_id_] = this;
}

loopback_peer::~loopback_peer() {
  stopping_ = true;
  network_.peers_.erase(boot_id_);
  // Callbacks may start no read any more, so that this ends; they may end others by cancel().
  for (auto at = network_.reads_.begin(); at != network_.reads_.end();) {
    const auto next = std::next(at);
    if (at->reader == this) {
      if (!at->ended) network_.end(*at, peer_outcome::stopped);
      network_.release(at);
    }
    at = next;
  }
}

const std::byte* loopback_peer::find(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const auto* region = region_of(pool_.regions, offset, bytes);
  return region == nullptr ? nullptr : region->base + (offset - region->pool_offset);
}

result<std::shared_ptr<peer_remote>> loopback_peer::open(std::string_view address) {
  if (!address.starts_with(loopback_prefix) || address.size() == loopback_prefix.size() ||
      address.size() > loopback_prefix.size() + 64) {
    return fail(errc::invalid_argument, "these bytes are no address of a loopback peer");
  }
  return std::make_shared<loopback_remote>(std::string(address.substr(loopback_prefix.size())));
}

bool loopback_peer::read(const std::shared_ptr<peer_remote>& from, peer_read& read) noexcept {
  assert(read.on_done != nullptr && read.on_released != nullptr);
  assert(read.states.size() == read.pieces.size());
  assert(read.pieces.size() <= limits::peer_pieces_max);
  if (stopping_ || reads_ >= reads_max_) {
    metrics_.reads_rejected.add();
    return false;
  }
  std::fill(read.states.begin(), read.states.end(), piece_state::missing);
  read.remote = from;
  read.cancel_asked.store(false);
  loopback_network::running next;
  next.read = &read;
  next.reader = this;
  next.holder = std::string(from->boot_id());
  next.fault = network_.fault_for({boot_id_, next.holder});
  next.arrival = network_.time_.now() + next.fault.delay;
  const auto bytes = bytes_of(read);
  if (network_.bytes_per_second_ != 0) {
    const auto seconds =
        static_cast<double>(bytes) / static_cast<double>(network_.bytes_per_second_);
    next.arrival += std::chrono::duration_cast<duration>(std::chrono::duration<double>(seconds));
  }
  network_.reads_.push_back(std::move(next));
  ++reads_;
  metrics_.reads_inflight.add(1);
  metrics_.inflight_bytes.add(static_cast<std::int64_t>(bytes));
  return true;
}

void loopback_peer::cancel(peer_read& read) noexcept {
  read.cancel_asked.store(true);
}

}  // namespace kvd
