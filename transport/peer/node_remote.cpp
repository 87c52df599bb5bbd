#include "transport/peer/node_remote.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/log.hpp"

namespace kvd {

namespace {

std::int64_t as_signed(std::uint64_t bytes) {
  return static_cast<std::int64_t>(bytes);
}

template<class Container, class Value>
void erase_one(Container& from, const Value& value) {
  const auto at = std::find(from.begin(), from.end(), value);
  if (at != from.end()) from.erase(at);
}

}  // namespace

node_remote::node_remote(remote_context& context, peer_address address, peer_link_kind kind,
                         std::vector<std::vector<socket_address>> hosts)
    : context_(context), address_(std::move(address)), kind_(kind), hosts_(std::move(hosts)) {}

node_remote::~node_remote() {
  assert(reads_.empty() && link_ == nullptr);
}

peer_metrics::by_kind& node_remote::counted() noexcept {
  return context_.metrics->links[static_cast<std::size_t>(kind_)];
}

void node_remote::start(active_read& read) noexcept {
  reads_.push_back(&read);
  queue_.push_back(&read);
  next_deadline_ = std::min(next_deadline_, read.read->deadline);
  context_.metrics->reads_queued.add(1);
  if (read.read->pieces.empty()) finish(read, peer_outcome::done);
}

time_point node_remote::turn(time_point now, bool cancels) noexcept {
  expire(now, cancels);
  tick_link(now);
  pump(now);
  const auto next = tick_link(now);
  // What that tick made room for is not to wait for another event.
  return can_pump() ? now : std::min(next, next_deadline_);
}

time_point node_remote::tick_link(time_point now) noexcept {
  if (link_ == nullptr) return time_point::max();
  const auto next = link_->tick(now);
  if (!link_over_) return next;
  link_over_ = false;
  link_.reset();
  // One that carried nothing would only be followed by its like.
  if (!std::exchange(link_useful_, false)) end_all(link_why_);
  return time_point::max();
}

bool node_remote::can_pump() const noexcept {
  if (queue_.empty() && again_.empty()) return false;
  return link_ == nullptr || (link_->ready() && inflight_ < context_.how.inflight_bytes_max);
}

void node_remote::expire(time_point now, bool cancels) noexcept {
  if (now < next_deadline_ && !cancels) return;
  next_deadline_ = time_point::max();
  for (std::size_t i = 0; i < reads_.size();) {
    auto* const read = reads_[i];
    if (!read->ended) {
      if (read->read->deadline <= now) {
        finish(*read, peer_outcome::timed_out);
      } else if (read->read->cancel_asked.load(std::memory_order_acquire)) {
        finish(*read, peer_outcome::cancelled);
      } else {
        next_deadline_ = std::min(next_deadline_, read->read->deadline);
      }
    }
    if (i < reads_.size() && reads_[i] == read) ++i;
  }
}

void node_remote::pump(time_point now) noexcept {
  if (queue_.empty() && again_.empty()) return;
  if (link_ == nullptr) {
    std::string why;
    link_ = context_.make_link(*this, *this, why);
    if (link_ == nullptr) {
      log::warn("peer", "no link: {}", why);
      context_.metrics->link_failures.add();
      end_all(peer_outcome::unreachable);
      return;
    }
    link_->connect(now + context_.how.connect_timeout);
  }
  while (link_->ready() && inflight_ < context_.how.inflight_bytes_max) {
    auto* const transfer = next_transfer();
    if (transfer == nullptr) return;
    inflight_ += transfer->bytes;
    context_.metrics->inflight_bytes.add(as_signed(transfer->bytes));
    link_->submit(*transfer);
  }
}

peer_transfer* node_remote::next_transfer() noexcept {
  if (!again_.empty()) {
    auto* const transfer = again_.front();
    again_.pop_front();
    return transfer;
  }
  if (queue_.empty()) return nullptr;
  auto& read = *queue_.front();
  if (read.next_piece == 0 && read.next_byte == 0) {
    context_.metrics->reads_queued.add(-1);
    context_.metrics->reads_inflight.add(1);
  }
  auto& spare = context_.spare_transfers;
  if (spare.empty()) spare.push_back(std::make_unique<peer_transfer>());
  auto* const transfer = spare.back().release();
  spare.pop_back();
  cut_next(read, context_.how.cut, *transfer);
  read.running.push_back(transfer);
  if (read.all_cut()) queue_.pop_front();
  return transfer;
}

void node_remote::count(active_read& read, peer_transfer& transfer) noexcept {
  const auto bytes = count_arrived(read, transfer);
  transfer.bytes -= bytes;
  counted().read_bytes.add(bytes);
}

// The transfer is of no use to its read any more.
void node_remote::drop(active_read& read, peer_transfer& transfer) noexcept {
  erase_one(read.running, &transfer);
  context_.spare_transfers.emplace_back(&transfer);
}

void node_remote::transfer_over(peer_transfer& transfer, transfer_end end) noexcept {
  auto& read = *transfer.of;
  inflight_ -= transfer.bytes;
  context_.metrics->inflight_bytes.add(-as_signed(transfer.bytes));
  if (end == transfer_end::done) link_useful_ = true;
  if (read.ended) {
    context_.metrics->quarantined_bytes.add(-as_signed(transfer.bytes));
    drop(read, transfer);
    if (read.running.empty()) release(read);
    return;
  }
  count(read, transfer);
  if (end == transfer_end::again && !transfer.fragments.empty()) {
    again_.push_back(&transfer);
    return;
  }
  drop(read, transfer);
  if (end == transfer_end::lost) {
    finish(read, peer_outcome::link_lost);
  } else if (end == transfer_end::refused) {
    finish(read, peer_outcome::refused);
  } else if (read.missing_pieces == 0) {
    finish(read, peer_outcome::done);
  }
}

void node_remote::finish(active_read& read, peer_outcome outcome) noexcept {
  auto& metrics = *context_.metrics;
  const bool begun = read.next_piece > 0 || read.next_byte > 0;
  (begun ? metrics.reads_inflight : metrics.reads_queued).add(-1);
  read.ended = true;
  if (!read.all_cut() || read.read->pieces.empty()) erase_one(queue_, &read);
  for (std::size_t i = 0; i < read.running.size();) {
    auto& transfer = *read.running[i];
    const bool waits = std::find(again_.begin(), again_.end(), &transfer) != again_.end();
    if (waits) {
      erase_one(again_, &transfer);
      drop(read, transfer);
      continue;
    }
    // What arrived so far counts, and is not to be asked for or counted again.
    const auto asked = transfer.bytes;
    const bool free = link_->abandon(transfer, context_.ticks->now());
    if (free) {
      count(read, transfer);
      inflight_ -= asked;
      metrics.inflight_bytes.add(-as_signed(asked));
      drop(read, transfer);
    } else {
      metrics.quarantined_bytes.add(as_signed(transfer.bytes));
      ++i;
    }
  }
  metrics.reads[static_cast<std::size_t>(outcome)].add();
  const std::chrono::duration<double> took = context_.ticks->now() - read.begun;
  if (outcome == peer_outcome::done) metrics.read_seconds.observe(took.count());
  read.read->on_done(*read.read, outcome);
  if (read.running.empty()) release(read);
}

void node_remote::release(active_read& read) noexcept {
  erase_one(reads_, &read);
  context_.recycle(read);
}

void node_remote::link_up() noexcept {
  connected_.store(true, std::memory_order_relaxed);
  counted().links_up.add(1);
  counted().links_made.add();
}

void node_remote::link_down(peer_outcome why, const std::string& detail) noexcept {
  link_over_ = true;
  link_why_ = why;
  if (connected_.exchange(false, std::memory_order_relaxed)) {
    counted().links_up.add(-1);
    counted().links_lost.add();
  } else {
    context_.metrics->link_failures.add();
  }
  log::info("peer", "link ended kind={} outcome={} why=\"{}\"", name(kind_), name(why), detail);
}

void node_remote::end_all(peer_outcome outcome) noexcept {
  for (std::size_t i = 0; i < reads_.size();) {
    auto* const read = reads_[i];
    if (!read->ended) finish(*read, outcome);
    if (i < reads_.size() && reads_[i] == read) ++i;
  }
}

void node_remote::stop() noexcept {
  end_all(peer_outcome::stopped);
  if (link_ != nullptr) link_->close();
}

void node_remote::unlink() noexcept {
  if (link_ != nullptr) link_->close();
}

}  // namespace kvd
