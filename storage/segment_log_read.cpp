// Reading records back, and judging what was read.

#include <cassert>
#include <cerrno>

#include "storage/segment_log_parts.hpp"

namespace kvd {

void segment_log::read(record_read& read) noexcept {
  ++busy_;
  read.next = nullptr;
  *reads_last_ = &read;
  reads_last_ = &read.next;
  pump();
}

// Takes the first of the line off it.
void segment_log::answer(record_read& read, int error) noexcept {
  assert(reads_first_ == &read);
  reads_first_ = read.next;
  if (reads_first_ == nullptr) reads_last_ = &reads_first_;
  --busy_;
  read.on_done(read, error);
}

// False: it waits for a slot.
bool segment_log::start_read(record_read& read) noexcept {
  const auto& identity = read.identity;
  if (identity.hash.size() > limits::hash_bytes_max ||
      identity.name_space.size() > limits::id_bytes_max) {
    return answer(read, ENOENT), true;
  }
  const auto key = key_of(identity);
  const auto place = index_.find(key);
  if (!place) return answer(read, ENOENT), true;
  std::uint64_t payload = 0;
  for (const auto& piece : read.payload)
    payload += piece.bytes;
  const auto header_bytes = ssd::record_header_bytes(identity, super_.alignment);
  // Another size, or another name under the same key: nobody stored what is asked for.
  if (payload != place->payload_units * ssd::unit_bytes ||
      header_bytes + ssd::round_up(payload, super_.alignment) !=
          place->record_units * ssd::unit_bytes) {
    return answer(read, ENOENT), true;
  }
  read_slot* slot = nullptr;
  for (auto& any : read_slots_) {
    if (any.read == nullptr) {
      slot = &any;
      break;
    }
  }
  if (slot == nullptr) return false;
  reads_first_ = read.next;
  if (reads_first_ == nullptr) reads_last_ = &reads_first_;
  auto& segment = segments_[place->segment];
  segment.read_since = true;
  slot->read = &read;
  slot->key = key;
  slot->place = *place;
  slot->generation = segment.generation;
  slot->pieces.clear();
  slot->pieces.push_back({slot->header.data(), header_bytes});
  slot->pieces.insert(slot->pieces.end(), read.payload.begin(), read.payload.end());
  slot->io = {};
  slot->io.what = file_io::kind::read;
  slot->io.offset = super_.offset_of(place->segment) + place->offset * ssd::unit_bytes;
  slot->io.pieces = slot->pieces;
  slot->io.owner = slot;
  slot->io.on_done = [](file_io& io, int error) noexcept {
    auto& done = *static_cast<read_slot*>(io.owner);
    auto& log = *done.log;
    log.finish(done, error != 0 ? error : log.verify(done));
    log.pump();
  };
  file_.submit(slot->io);
  return true;
}

int segment_log::verify(read_slot& slot) noexcept {
  const auto& read = *slot.read;
  const ssd::segment_header in_segment{slot.place.segment, slot.generation};
  const auto header_bytes = slot.pieces.front().bytes;
  const auto header = ssd::decode_record_header(super_, in_segment, slot.place.offset,
                                                slot.header.span().first(header_bytes));
  if (header && header->payload_bytes == slot.place.payload_units * ssd::unit_bytes) {
    const auto& found = header->identity;
    const auto& asked = read.identity;
    // Two identities of one key. The other one is in good order and stays.
    if (found.name_space != asked.name_space || found.group != asked.group ||
        found.fingerprint != asked.fingerprint || found.hash != asked.hash) {
      return ENOENT;
    }
    digest_.start(super_, slot.generation, slot.place.segment, slot.place.offset);
    for (const auto& piece : read.payload)
      digest_.add({piece.at, piece.bytes});
    if (digest_.value() == header->payload_checksum) return 0;
  }
  // The hand came by while the request was on its way: lost, not broken.
  if (segments_[slot.place.segment].generation != slot.generation) return ENOENT;
  if (index_.erase_if(slot.key, slot.place.segment, slot.place.offset)) {
    records_corrupt_.fetch_add(1, std::memory_order_relaxed);
  }
  return EBADMSG;
}

void segment_log::finish(read_slot& slot, int error) noexcept {
  auto& read = *slot.read;
  slot.read = nullptr;
  --busy_;
  read.on_done(read, error);
}

}  // namespace kvd
