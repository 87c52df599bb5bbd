#include "storage/segment_log.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "storage/segment_log_parts.hpp"

namespace kvd {

namespace {

// Enough to keep any disk busy with blocks of some hundred KiB; each has one header in RAM.
constexpr std::size_t writes_at_once = 64;
constexpr std::size_t reads_at_once = 128;
// Layers of a block, mostly; more make a slot's list grow once.
constexpr std::size_t pieces_expected = 64;

template<class Request>
std::uint64_t payload_bytes_of(const Request& of) {
  std::uint64_t bytes = 0;
  for (const auto& piece : of.payload)
    bytes += piece.bytes;
  return bytes;
}

}  // namespace

segment_log::segment_log(block_file& file, const log_options& how, random_source& random)
    : file_(file), how_(how), write_slots_(writes_at_once), read_slots_(reads_at_once),
      index_(random.next()) {
  const auto header_bytes = ssd::record_header_bytes_max(4096);
  for (auto& slot : write_slots_) {
    slot.log = this;
    slot.header = aligned_bytes(header_bytes);
    slot.pieces.reserve(pieces_expected);
  }
  for (auto& slot : read_slots_) {
    slot.log = this;
    slot.header = aligned_bytes(header_bytes);
    slot.pieces.reserve(pieces_expected);
  }
  for (auto& active : active_) {
    active = std::make_unique<active_segment>();
    active->log = this;
    active->header = aligned_bytes(4096);
  }
}

segment_log::~segment_log() {
  assert(busy_ == 0);
  settle();
}

std::size_t segment_log::busy() const noexcept {
  return busy_;
}

std::uint64_t segment_log::payload_bytes(const record_key& key) const noexcept {
  const auto place = index_.find(key);
  return place ? place->payload_units * ssd::unit_bytes : 0;
}

segment_log::usage_report segment_log::usage() const noexcept {
  usage_report report;
  report.records = index_.size();
  report.record_bytes = index_.record_units() * ssd::unit_bytes;
  report.capacity_bytes = super_.segment_count * super_.segment_bytes;
  report.segments = super_.segment_count;
  report.segments_free = segments_free_.load(std::memory_order_relaxed);
  report.segments_reclaimed = segments_reclaimed_.load(std::memory_order_relaxed);
  report.records_reclaimed = records_reclaimed_.load(std::memory_order_relaxed);
  report.records_corrupt = records_corrupt_.load(std::memory_order_relaxed);
  report.index_bytes = index_.index_bytes() + list_bytes_.load(std::memory_order_relaxed);
  return report;
}

void segment_log::append(record_write& write) noexcept {
  ++busy_;
  write.next = nullptr;
  *writes_last_ = &write;
  writes_last_ = &write.next;
  pump();
}

// Starts what can be started. A completion that it runs may append and read: that joins the end of
// the line, and this loop, not a deeper one, comes to it.
void segment_log::pump() noexcept {
  if (pumping_) return;
  pumping_ = true;
  for (bool moved = true; moved;) {
    moved = false;
    while (writes_first_ != nullptr && start_write(*writes_first_))
      moved = true;
    while (reads_first_ != nullptr && start_read(*reads_first_))
      moved = true;
  }
  pumping_ = false;
}

// Takes the first of the line off it.
void segment_log::answer(record_write& write, int error) noexcept {
  assert(writes_first_ == &write);
  writes_first_ = write.next;
  if (writes_first_ == nullptr) writes_last_ = &writes_first_;
  --busy_;
  write.on_done(write, error);
}

// False: it waits, for a slot or for a segment.
bool segment_log::start_write(record_write& write) noexcept {
  const auto& identity = write.identity;
  const auto payload = payload_bytes_of(write);
  if (payload == 0 || payload % ssd::unit_bytes != 0 || identity.hash.empty() ||
      identity.hash.size() > limits::hash_bytes_max ||
      identity.name_space.size() > limits::id_bytes_max) {
    return answer(write, EINVAL), true;
  }
  const auto alignment = super_.alignment;
  const auto room = super_.segment_bytes - alignment - ssd::footer_bytes(1, alignment);
  const auto header = ssd::record_header_bytes(identity, alignment);
  if (payload > room || header + ssd::round_up(payload, alignment) > room) {
    return answer(write, EFBIG), true;
  }
  const auto key = key_of(identity);
  bool known = index_.contains(key);
  write_slot* slot = nullptr;
  for (auto& any : write_slots_) {
    if (any.at == write_slot::stage::free) {
      if (slot == nullptr) slot = &any;
    } else if (any.entry.key == key) {
      known = true;
    }
  }
  if (known) return answer(write, EEXIST), true;
  if (slot == nullptr) return false;
  const auto record = header + ssd::round_up(payload, alignment);
  if (open_ != nullptr && open_->next + record + ssd::footer_bytes(open_->placed + 1, alignment) >
                              super_.segment_bytes) {
    close_segment(*open_);
  }
  if (open_ == nullptr) {
    int error = 0;
    if (!open_segment(error)) return error != 0 && (answer(write, error), true);
  }
  slot->entry = {key, static_cast<std::uint32_t>(open_->next / ssd::unit_bytes),
                 static_cast<std::uint32_t>(payload / ssd::unit_bytes),
                 static_cast<std::uint32_t>(record / ssd::unit_bytes)};
  place(*slot, write);
  return true;
}

void segment_log::place(write_slot& slot, record_write& write) noexcept {
  writes_first_ = write.next;
  if (writes_first_ == nullptr) writes_last_ = &writes_first_;
  slot.write = &write;
  slot.in = open_;
  slot.at = write_slot::stage::writing;
  slot.error = 0;
  open_->next += slot.entry.record_units * ssd::unit_bytes;
  ++open_->placed;
  ++open_->under_way;
  submit_record(slot);
}

void segment_log::submit_record(write_slot& slot) noexcept {
  const auto& write = *slot.write;
  const auto generation = segments_[slot.in->number].generation;
  ssd::record_header header{write.identity, generation, slot.in->number, slot.entry.offset, 0, 0};
  const auto header_bytes = ssd::record_header_bytes(write.identity, super_.alignment);
  slot.pieces.clear();
  slot.pieces.push_back({slot.header.data(), header_bytes});
  digest_.start(super_, generation, slot.in->number, slot.entry.offset);
  for (const auto& piece : write.payload) {
    digest_.add({piece.at, piece.bytes});
    header.payload_bytes += piece.bytes;
    slot.pieces.push_back(piece);
  }
  header.payload_checksum = digest_.value();
  ssd::encode_record_header(super_, header, slot.header.span().first(header_bytes));
  slot.io = {};
  slot.io.what = file_io::kind::write;
  slot.io.offset = super_.offset_of(slot.in->number) + slot.entry.offset * ssd::unit_bytes;
  slot.io.pieces = slot.pieces;
  slot.io.owner = &slot;
  slot.io.on_done = [](file_io& io, int error) noexcept {
    auto& done = *static_cast<write_slot*>(io.owner);
    auto& log = *done.log;
    if (error != 0) {
      log.finish(done, error);
    } else {
      log.written(done);
    }
    log.pump();
  };
  file_.submit(slot.io);
}

// A record is found only after the header of its segment: else a restart would not see it.
void segment_log::written(write_slot& slot) noexcept {
  if (!slot.in->header_on_file) {
    slot.at = write_slot::stage::header;
  } else if (slot.in->header_error != 0) {
    finish(slot, slot.in->header_error);
  } else if (how_.level == durability::write) {
    slot.at = write_slot::stage::sync;
    start_sync();
  } else {
    finish(slot, 0);
  }
}

// One sync at a time, for all that were written before it.
void segment_log::start_sync() noexcept {
  if (syncing_) return;
  for (auto& slot : write_slots_) {
    if (slot.at != write_slot::stage::sync) continue;
    slot.at = write_slot::stage::syncing;
    syncing_ = true;
  }
  if (!syncing_) return;
  for (const auto& active : active_)
    active->header_syncing = active->header_on_file;
  sync_ = {};
  sync_.what = file_io::kind::sync;
  sync_.owner = this;
  sync_.on_done = [](file_io& io, int error) noexcept {
    static_cast<segment_log*>(io.owner)->synced(error);
  };
  file_.submit(sync_);
}

void segment_log::synced(int error) noexcept {
  syncing_ = false;
  if (error != 0) sync_failed(error);
  for (const auto& active : active_) {
    if (error != 0 || !active->header_syncing || active->header_synced) continue;
    active->header_synced = true;
    failures_in_a_row_ = 0;
  }
  // All are marked before the first is told: its completion may start the next sync.
  for (auto& slot : write_slots_) {
    if (slot.at == write_slot::stage::syncing) slot.at = write_slot::stage::done;
  }
  for (auto& slot : write_slots_) {
    if (slot.at == write_slot::stage::done) finish(slot, slot.error);
  }
  start_sync();
  pump();
}

// A sync that fails may have lost all that was written and not synced yet, and no later one says
// so: those records fail, and so do those that are placed behind such a segment header.
void segment_log::sync_failed(int error) noexcept {
  if (how_.level != durability::write) return;
  for (auto& slot : write_slots_) {
    using stage = write_slot::stage;
    if (slot.at == stage::header || slot.at == stage::sync || slot.at == stage::syncing) {
      slot.error = error;
    }
  }
  for (const auto& active : active_) {
    if (active->as == active_segment::use::idle || !active->header_on_file ||
        active->header_synced || active->header_error != 0) {
      continue;
    }
    active->header_error = error;
    ++failures_in_a_row_;
    if (open_ == active.get()) close_segment(*active);
  }
}

void segment_log::finish(write_slot& slot, int error) noexcept {
  auto& in = *slot.in;
  if (error == 0) {
    const auto& entry = slot.entry;
    segments_[in.number].entries.push_back(entry);
    list_bytes_.fetch_add(sizeof entry, std::memory_order_relaxed);
    index_.insert(entry.key, {in.number, entry.offset, entry.payload_units, entry.record_units});
  }
  auto& write = *slot.write;
  slot.write = nullptr;
  slot.at = write_slot::stage::free;
  --in.under_way;
  --busy_;
  list_if_quiet(in);
  write.on_done(write, error);
}

}  // namespace kvd
