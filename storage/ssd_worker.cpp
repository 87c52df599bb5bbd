#include "storage/ssd_worker.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>

#include <pthread.h>

#include "core/log.hpp"
#include "storage/segment_format.hpp"

namespace kvd {

namespace {

// How long the thread sleeps when nothing is under way: wake() ends it early.
constexpr std::chrono::milliseconds idle_wait{200};
// While a fetch waits for somebody else's copy there is nothing to be woken by.
constexpr std::chrono::milliseconds busy_wait{1};
// Memory that is registered in one go: some milliseconds in which nothing else is done.
constexpr std::size_t registered_at_once = std::size_t{256} << 20;

void observe(std::uint64_t bytes, duration took, histogram& seconds, histogram& rate) {
  const auto time = std::chrono::duration<double>(took).count();
  seconds.observe(time);
  if (time > 0) rate.observe(static_cast<double>(bytes) / time);
}

}  // namespace

std::uint64_t piece_bytes(const block_store& store, const scope::part& part,
                          const block_file& file) noexcept {
  const auto bytes = ssd::round_up(part.bytes, file.alignment());
  return bytes <= store.slot_bytes(part) ? bytes : 0;
}

bool fits_file(const block_store& store, const scope& in, const block_file& file) noexcept {
  return std::all_of(in.parts.begin(), in.parts.end(),
                     [&](const scope::part& part) { return piece_bytes(store, part, file) > 0; });
}

struct ssd_worker::write_slot {
  ssd_worker* home = nullptr;
  record_write write;
  std::vector<io_piece> pieces;
  block_index block = no_block;
  std::uint64_t bytes = 0;
  time_point begun{};
};

ssd_worker::ssd_worker(const ssd_worker_options& how, std::unique_ptr<block_file> file,
                       std::unique_ptr<segment_log> log, block_store& store, const clock& time,
                       ssd_metrics& metrics, ssd_fetch_table& fetches, ssd_events& events)
    : options_(how), file_(std::move(file)), log_(std::move(log)), store_(store), clock_(time),
      metrics_(metrics), fetches_(fetches), events_(events), ring_(how.write_queue_blocks) {
  for (std::size_t i = 0; i < how.writes_inflight; ++i) {
    slots_.push_back(std::make_unique<write_slot>());
    slots_.back()->home = this;
    free_slots_.push_back(slots_.back().get());
  }
  if (!how.own_thread) return;
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "kvd-ssd");
    run();
  });
}

ssd_worker::~ssd_worker() {
  stopping_.store(true);
  if (options_.own_thread) {
    wake();
    thread_.join();
  } else {
    run();
  }
}

std::size_t ssd_worker::write(std::span<const sealed_block> blocks) noexcept {
  std::size_t taken = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& block : blocks) {
      if (ring_size_ == ring_.size()) break;
      ring_[(ring_head_ + ring_size_) % ring_.size()] = block;
      ++ring_size_;
      ++taken;
    }
  }
  metrics_.write_queue.add(static_cast<std::int64_t>(taken));
  if (taken > 0) wake();
  return taken;
}

void ssd_worker::read(std::unique_ptr<ssd_order> order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  wake();
}

void ssd_worker::drop_writes() noexcept {
  std::size_t dropped = 0;
  {
    const std::lock_guard lock(mutex_);
    dropped = std::exchange(ring_size_, 0);
  }
  metrics_.write_queue.add(-static_cast<std::int64_t>(dropped));
}

void ssd_worker::use_memory(std::span<std::byte> region) {
  {
    const std::lock_guard lock(mutex_);
    for (; !region.empty(); region = region.subspan(to_register_.back().size()))
      to_register_.push_back(region.first(std::min(region.size(), registered_at_once)));
  }
  wake();
}

// True when there is more to register.
bool ssd_worker::register_some() {
  std::span<std::byte> region;
  {
    const std::lock_guard lock(mutex_);
    if (to_register_.empty()) return false;
    region = to_register_.front();
    to_register_.pop_front();
  }
  const auto added = file_->use_memory(region);
  const std::lock_guard lock(mutex_);
  registered_.buffers = file_->counts().registered_buffers;
  if (!added) {
    registered_.refused = added.error().detail;
    to_register_.clear();
    log::info("ssd", "blocks move without registered memory from here on, buffers={}: {}",
              registered_.buffers, registered_.refused);
  } else if (to_register_.empty()) {
    log::info("ssd", "registered the pool buffers={}", registered_.buffers);
  }
  metrics_.registered_buffers.add(
      static_cast<std::int64_t>(registered_.buffers - counted_.registered_buffers));
  counted_.registered_buffers = registered_.buffers;
  return !to_register_.empty();
}

ssd_worker::memory_use ssd_worker::registered() const {
  const std::lock_guard lock(mutex_);
  return registered_;
}

void ssd_worker::count_operations() noexcept {
  const auto now = file_->counts();
  metrics_.operations.add(now.operations - counted_.operations);
  metrics_.fixed_operations.add(now.fixed_operations - counted_.fixed_operations);
  counted_.operations = now.operations;
  counted_.fixed_operations = now.fixed_operations;
}

bool ssd_worker::queues_empty() const noexcept {
  const std::lock_guard lock(mutex_);
  return ring_size_ == 0 && orders_.empty();
}

bool ssd_worker::start() noexcept {
  const bool stopping = stopping_.load();
  bool more = false;
  try {
    if (stopping) drop_writes();
    more = events_.idle(*this);
    more = start_reads() || more;
    if (!stopping) more = start_writes() || more;
    if (!stopping) more = register_some() || more;
  } catch (const std::exception& thrown) {
    // Out of memory, most likely: what was queued stays queued.
    log::error("ssd", "the SSD thread failed and goes on: {}", thrown.what());
    metrics_.thread_failures.add();
  }
  return more;
}

void ssd_worker::step() noexcept {
  assert(!options_.own_thread);
  start();
  file_->poll(std::chrono::milliseconds(0));
}

void ssd_worker::run() noexcept {
  while (true) {
    // Read before the round, so that what was queued before the word to stop is ended.
    const bool stopping = stopping_.load();
    const bool more = start();
    if (stopping && log_->busy() == 0 && queues_empty()) break;
    file_->poll(more ? busy_wait : idle_wait);
    count_operations();
  }
  if (auto closed = log_->close(); !closed) {
    log::warn("ssd", "the next start scans what was not listed: {}", closed.error().detail);
  }
}

record_identity ssd_worker::identity_of(const scope& in, std::string_view hash) {
  return {in.usage->name, in.group, in.fingerprint, hash};
}

// True when blocks wait that could not be started for want of a slot.
bool ssd_worker::start_writes() {
  while (!free_slots_.empty()) {
    sealed_block block{};
    {
      const std::lock_guard lock(mutex_);
      if (ring_size_ == 0) return false;
      block = ring_[ring_head_];
      ring_head_ = (ring_head_ + 1) % ring_.size();
      --ring_size_;
    }
    // In this order, so that a block which is neither queued nor under way is over.
    metrics_.writes_inflight.add(1);
    metrics_.write_queue.add(-1);
    if (!start_write(block)) metrics_.writes_inflight.add(-1);
  }
  return false;
}

// True when a write is under way.
bool ssd_worker::start_write(const sealed_block& block) {
  if (!store_.pin_again(block)) {
    metrics_.write_skipped_evicted.add();
    return false;
  }
  const auto& in = store_.scope_of(store_.scope_id_of(block.block));
  const auto identity = identity_of(in, store_.hash_of(block.block));
  const bool fits = fits_file(store_, in, *file_);
  if (!fits) metrics_.write_failures.add();
  if (!fits || log_->contains(key_of(identity))) {
    store_.unpin(std::span(&block.block, 1));
    return false;
  }
  auto& slot = *free_slots_.back();
  free_slots_.pop_back();
  slot.block = block.block;
  slot.begun = clock_.now();
  slot.pieces.clear();
  slot.bytes = 0;
  for (std::uint32_t part = 0; part < in.parts.size(); ++part) {
    // The file only reads from there.
    auto* at = const_cast<std::byte*>(store_.part_address(block.block, part));
    slot.pieces.push_back({at, piece_bytes(store_, in.parts[part], *file_)});
    slot.bytes += slot.pieces.back().bytes;
  }
  slot.write = {identity, slot.pieces,
                [](record_write& write, int error) noexcept {
                  auto& done = *static_cast<write_slot*>(write.owner);
                  done.home->written(done, error);
                },
                &slot};
  log_->append(slot.write);
  return true;
}

void ssd_worker::written(write_slot& slot, int error) noexcept {
  store_.unpin(std::span(&slot.block, 1));
  metrics_.writes_inflight.add(-1);
  free_slots_.push_back(&slot);
  if (error == EEXIST) return;
  if (error == 0) {
    metrics_.write_bytes.add(slot.bytes);
    observe(slot.bytes, clock_.now() - slot.begun, metrics_.write_seconds, metrics_.write_rate);
    return;
  }
  metrics_.write_failures.add();
  if (error != EFBIG) events_.write_failed(error);
}

// True when orders wait that could not be started yet.
bool ssd_worker::start_reads() {
  while (reads_running_ < options_.reads_inflight) {
    std::unique_ptr<ssd_order> order;
    {
      const std::lock_guard lock(mutex_);
      if (orders_.empty()) return false;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    if (order->fetch->cancelled.load() || stopping_.load()) {
      store_.abandon(order->claims);
      const auto fetch = std::move(order->fetch);
      events_.order_over(fetch);
      continue;
    }
    ++reads_running_;
    metrics_.reads_inflight.add(1);
    order->home = this;
    order->begun = clock_.now();
    const auto& in = store_.scope_of(order->fetch->in);
    order->read = {identity_of(in, order->fetch->hashes[order->position]), order->pieces,
                   [](record_read& read, int error) noexcept {
                     std::unique_ptr<ssd_order> done(static_cast<ssd_order*>(read.owner));
                     auto* const home = done->home;
                     home->was_read(std::move(done), error);
                   },
                   order.get()};
    auto& read = order.release()->read;
    log_->read(read);
  }
  return false;
}

void ssd_worker::was_read(std::unique_ptr<ssd_order> order, int error) noexcept {
  --reads_running_;
  metrics_.reads_inflight.add(-1);
  std::uint64_t bytes = 0;
  for (const auto& piece : order->pieces)
    bytes += piece.bytes;
  if (error == 0) {
    seal(*order);
    metrics_.read_bytes.add(bytes);
    metrics_.reads_done.add();
    observe(bytes, clock_.now() - order->begun, metrics_.read_seconds, metrics_.read_rate);
  } else {
    store_.abandon(order->claims);
    metrics_.read_failures.add();
    if (error == EBADMSG) metrics_.corrupt.add();
  }
  const auto fetch = std::move(order->fetch);
  order.reset();
  events_.order_over(fetch);
}

// What was read becomes a block of the store, pinned for the fetch.
void ssd_worker::seal(ssd_order& order) {
  const auto block = order.claims.front().block;
  store_.pin_claimed(order.claims.front());
  const auto& in = store_.scope_of(order.fetch->in);
  for (std::size_t part = 0; part < order.claims.size(); ++part) {
    const auto cells = in.parts[part].cells;
    while (cells_.size() < cells)
      cells_.push_back(static_cast<std::uint32_t>(cells_.size()));
    store_.commit(std::span(order.claims).subspan(part, 1), std::span(cells_).first(cells));
  }
  fetches_.hold(*order.fetch, std::span(&block, 1), 1);
}

}  // namespace kvd
