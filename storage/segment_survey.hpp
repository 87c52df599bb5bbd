#pragma once
// What a file that nobody writes holds: its segments by their two ends, and the records of each.
//
// Used by the start of a log and by fsck. Waits for the file; owner: its thread. Memory is bounded
// by the number of segments and the size of one footer, whatever the file claims.

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "storage/aligned_bytes.hpp"
#include "storage/block_file.hpp"
#include "storage/segment_format.hpp"

namespace kvd {

struct found_segment {
  enum class kind : std::uint8_t {
    free,       // never written, or by nobody we know
    listed,     // with a footer
    unlisted,   // open when its owner ended, or its footer is broken
    unreadable  // the file failed
  };
  std::uint32_t number = 0;
  kind what = kind::free;
  ssd::segment_header header;
  ssd::trailer footer;
  std::string wrong;  // empty, or what should not be so
};

// Reads the superblock's page; all zero, up to where segments begin, is an empty result.
struct found_superblock {
  bool blank = false;
  ssd::superblock of;
};
result<found_superblock> read_superblock(block_file& file);
// Writes and syncs it.
result<void> write_superblock(block_file& file, const ssd::superblock& of);

class segment_survey {
public:
  // Both outlive it.
  segment_survey(block_file& file, const ssd::superblock& of);

  // All segments by number.
  std::vector<found_segment> read_ends();
  // The footer's lines. REQUIRES: `of` is listed.
  result<std::vector<ssd::list_entry>> read_list(const found_segment& of);

  struct scanned {
    std::vector<ssd::list_entry> records;  // whole, by offset
    std::uint64_t torn = 0;                // a header, but not its payload
    std::string wrong;                     // why the scan ended early
  };
  // Tries every aligned place. REQUIRES: `of` has a header.
  scanned scan(const found_segment& of);

  // Checks the record there with its payload. not_found: no header of this generation;
  // invalid_argument: torn or changed; io: the file failed.
  result<ssd::list_entry> check_record(const found_segment& of, std::uint64_t offset);
  // Writes the segment's footer anew, and waits.
  result<void> write_list(const found_segment& of, std::span<const ssd::list_entry> entries);

  std::uint64_t bytes_read() const noexcept { return bytes_read_; }

private:
  // Bytes of the segment from `offset` on, `wanted` of them at least. REQUIRES: wanted fits both
  // the segment and the window.
  result<std::span<const std::byte>> view(const found_segment& of, std::uint64_t offset,
                                          std::uint64_t wanted);
  void judge(found_segment& of, std::span<const std::byte> head, std::span<const std::byte> tail);

  block_file& file_;
  const ssd::superblock& of_;
  aligned_bytes window_;
  std::uint64_t window_at_ = 0;  // in the file
  std::uint64_t window_bytes_ = 0;
  ssd::payload_digest digest_;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace kvd
