#pragma once
// The private parts of segment_log: requests under way, and what it knows of its segments.
//
// A write slot goes: free, writing, then (its segment's header is not on the file yet) header, then
// (durability::write) sync and syncing, then done, and free again once its caller was told.

#include <cstdint>
#include <vector>

#include "storage/aligned_bytes.hpp"
#include "storage/segment_log.hpp"

namespace kvd {

struct segment_log::segment_state {
  std::uint64_t generation = 0;          // 0: never written by this log
  std::vector<ssd::list_entry> entries;  // published, in any order while it is open
  bool read_since = false;               // since the hand passed
  bool listed = false;                   // a footer of this generation is on the file
};

struct segment_log::active_segment {
  enum class use : std::uint8_t { idle, open, closing, listing };
  segment_log* log = nullptr;
  use as = use::idle;
  std::uint32_t number = 0;
  std::uint64_t next = 0;       // bytes from its start
  std::uint64_t placed = 0;     // records, failed ones included: the footer's room
  std::uint64_t under_way = 0;  // records not finished
  bool header_on_file = false;
  bool header_syncing = false;  // a sync that was begun after that is under way
  bool header_synced = false;   // and ended well
  int header_error = 0;
  bool footer_on_file = false;
  aligned_bytes header;
  aligned_bytes footer;  // grows to the largest that was needed
  file_io io;
  io_piece piece{};
};

struct segment_log::write_slot {
  enum class stage : std::uint8_t { free, writing, header, sync, syncing, done };
  segment_log* log = nullptr;
  stage at = stage::free;
  record_write* write = nullptr;
  active_segment* in = nullptr;
  ssd::list_entry entry;
  int error = 0;  // of a sync that may have lost it
  aligned_bytes header;
  std::vector<io_piece> pieces;
  file_io io;
};

struct segment_log::read_slot {
  segment_log* log = nullptr;
  record_read* read = nullptr;  // null: free
  record_key key;
  record_place place;
  std::uint64_t generation = 0;
  aligned_bytes header;
  std::vector<io_piece> pieces;
  file_io io;
};

}  // namespace kvd
