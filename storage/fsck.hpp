#pragma once
// Checks the file of an SSD tier that nobody has open: every structure, every payload's checksum.
//
// Waits for the file, reads all of it once, and writes nothing unless it is to repair: then
// segments without a footer, or with a broken one, get one, and records that are broken leave
// theirs, so that the next start finds what is good and nothing else. Payloads are never changed.

#include <cstdint>
#include <string>
#include <vector>

#include "storage/block_file.hpp"

namespace kvd {

struct fsck_report {
  bool valid = false;  // it is a kvd SSD file of this version, or a blank one
  bool blank = false;
  bool clean = false;  // the last owner closed it
  std::uint64_t segments = 0;
  std::uint64_t segments_listed = 0;
  std::uint64_t segments_scanned = 0;  // no footer, or a broken one
  std::uint64_t segments_free = 0;
  std::uint64_t segments_broken = 0;  // among the others: a header, footer or list was wrong
  std::uint64_t records = 0;          // good ones that a start would find
  std::uint64_t record_bytes = 0;     // of those, headers and padding included
  std::uint64_t records_stale = 0;    // good, but a later one has the same key
  std::uint64_t records_corrupt = 0;  // listed, but not what was written
  std::uint64_t records_torn = 0;     // begun, not finished, in scanned segments
  std::uint64_t footers_written = 0;  // by the repair
  std::vector<std::string> findings;  // for a person; the first hundred
  std::uint64_t findings_left_out = 0;
  bool repaired = false;  // all that was to be written was

  // Nothing that a crash alone would not leave, but for one case: a crash while a segment was being
  // given up may leave its old list with new bytes, which counts as corrupt.
  bool sound() const noexcept { return valid && segments_broken == 0 && records_corrupt == 0; }
};

// REQUIRES: no segment_log has the file.
fsck_report fsck(block_file& file, bool repair);

}  // namespace kvd
