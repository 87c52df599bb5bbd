#pragma once
// Blocks on one file: appended as records, found by key, given up oldest first unless they are
// read.
//
// The file is cut into a superblock and equal segments (docs/ssd-format.md draws them). One segment
// is open and takes records; a full one gets a footer that lists its records, so that the next
// start reads footers and scans only what was open. A record is one block: a header with its whole
// identity, and the bytes of its parts one behind the other. Header and payload carry checksums
// that are seeded with the file's secret and the segment's generation, so that bytes of an earlier
// life, or of a client, never pass for a record.
//
// When free segments run out, a hand passes over the full ones in the order they were written: one
// that was read since it last passed is spared once, the first other one is emptied.
//
// Owner: one thread calls everything but the look-ups (contains() .. usage()), which any thread may
// call. The file, and what requests point at, outlive the requests. No call waits; completions run
// inside poll() of the file, or inside append() and read() when the answer needs no request:
// EEXIST, EFBIG, EINVAL, ENOENT. A completion may call append() and read().

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "storage/block_file.hpp"
#include "storage/segment_format.hpp"
#include "storage/ssd_index.hpp"

namespace kvd {

// When a write counts as done.
enum class durability : std::uint8_t {
  process,  // survives the death of the process; after a power loss recent segments may be gone
  segment,  // and each full segment is synced before its space or the next one is relied upon
  write     // and each record is synced before it is found
};

struct log_options {
  durability level = durability::segment;
  std::uint64_t segment_bytes = 0;  // 0: by the size of the file. Only used when the log is made
};

// One block on its way to the file. Belongs to the log from append() to on_done().
struct record_write {
  record_identity identity;           // what its views show stays until on_done()
  std::span<const io_piece> payload;  // sizes are multiples of the file's alignment
  // `error`: 0, EEXIST when the key is stored already or on its way, EFBIG when no segment could
  // hold it, EINVAL when there is no payload or a name is too long, or what the file said.
  void (*on_done)(record_write& write, int error) noexcept = nullptr;
  void* owner = nullptr;
  record_write* next = nullptr;  // the log's
};

// One block on its way to memory. Belongs to the log from read() to on_done().
struct record_read {
  record_identity identity;
  std::span<const io_piece> payload;  // where the bytes go; as many bytes as were written
  // `error`: 0, ENOENT when it is not stored (any more) or has another size, EBADMSG when what lies
  // there is not what was written (the key is forgotten then), or what the file said.
  void (*on_done)(record_read& read, int error) noexcept = nullptr;
  void* owner = nullptr;
  record_read* next = nullptr;  // the log's
};

class segment_log {
public:
  struct recovery {
    bool created = false;  // the file was empty: a new log
    bool clean = false;    // the last owner closed it
    std::uint64_t records = 0;
    std::uint64_t segments_listed = 0;   // from footers
    std::uint64_t segments_scanned = 0;  // record by record
    std::uint64_t segments_unreadable = 0;
    std::uint64_t records_torn = 0;  // begun, not finished; only in scanned segments
    std::uint64_t bytes_read = 0;
    duration took{};
  };
  struct usage_report {
    std::uint64_t records = 0;
    std::uint64_t record_bytes = 0;    // on the file, headers and padding included
    std::uint64_t capacity_bytes = 0;  // of all segments
    std::uint64_t segments = 0;
    std::uint64_t segments_free = 0;
    std::uint64_t segments_reclaimed = 0;  // since the start
    std::uint64_t records_reclaimed = 0;
    std::uint64_t records_corrupt = 0;  // forgotten because a checksum or identity was wrong
    std::uint64_t index_bytes = 0;      // of RAM
  };

  // Reads what is there, or makes a new log on a file whose superblock is all zero. Waits for the
  // file. invalid_argument: the file is too small, of another format (never touched then) or
  // version; io: it could not be read.
  static result<std::unique_ptr<segment_log>> open(block_file& file, const log_options& how,
                                                   random_source& random, const clock& time);
  // Without close(), as a kill would leave it. REQUIRES: no request is under way.
  ~segment_log();
  segment_log(const segment_log&) = delete;
  segment_log& operator=(const segment_log&) = delete;

  const recovery& recovered() const noexcept { return recovered_; }

  void append(record_write& write) noexcept;
  void read(record_read& read) noexcept;
  // Requests under way, of both kinds.
  std::size_t busy() const noexcept;
  // Lists the open segment, syncs, and marks the log clean. Waits. REQUIRES: not busy(), and
  // nothing but look-ups afterwards.
  result<void> close() noexcept;

  // -- any thread --
  bool contains(const record_key& key) const noexcept { return index_.contains(key); }
  // Bytes of the payload, 0 when it is not stored.
  std::uint64_t payload_bytes(const record_key& key) const noexcept;
  usage_report usage() const noexcept;

private:
  struct write_slot;
  struct read_slot;
  struct active_segment;
  struct segment_state;

  segment_log(block_file& file, const log_options& how, random_source& random);

  // segment_recovery.cpp
  result<void> start(random_source& random, const clock& time);
  result<void> make(random_source& random);
  result<void> recover();
  void take_over(std::uint32_t number, std::span<const ssd::list_entry> entries, bool listed);
  result<void> list_unlisted();

  // segment_log.cpp
  void pump() noexcept;
  bool start_write(record_write& write) noexcept;
  void place(write_slot& slot, record_write& write) noexcept;
  void submit_record(write_slot& slot) noexcept;
  void written(write_slot& slot) noexcept;
  void start_sync() noexcept;
  void synced(int error) noexcept;
  void sync_failed(int error) noexcept;
  void finish(write_slot& slot, int error) noexcept;
  void answer(record_write& write, int error) noexcept;

  // segment_log_read.cpp
  bool start_read(record_read& read) noexcept;
  void finish(read_slot& slot, int error) noexcept;
  int verify(read_slot& slot) noexcept;
  void answer(record_read& read, int error) noexcept;

  // segment_log_space.cpp
  bool open_segment(int& error) noexcept;
  std::uint32_t choose() noexcept;
  void reclaim(std::uint32_t number) noexcept;
  void header_done(active_segment& of, int error) noexcept;
  void close_segment(active_segment& of) noexcept;
  void list_if_quiet(active_segment& of) noexcept;
  void footer_done(active_segment& of, int error) noexcept;
  void retire(active_segment& of) noexcept;
  void settle() noexcept;

  block_file& file_;
  const log_options how_;
  ssd::superblock super_;
  std::vector<segment_state> segments_;
  std::deque<std::uint32_t> free_;    // to be opened, first to last
  std::deque<std::uint32_t> full_;    // the hand stands before the first
  std::deque<std::uint32_t> failed_;  // their header could not be written; tried last
  std::uint32_t failures_in_a_row_ = 0;
  std::uint64_t generation_ = 0;  // the latest given

  std::vector<write_slot> write_slots_;
  std::vector<read_slot> read_slots_;
  std::array<std::unique_ptr<active_segment>, 2> active_;  // one takes records, one gets its footer
  active_segment* open_ = nullptr;
  record_write* writes_first_ = nullptr;  // that wait for a slot or a segment
  record_write** writes_last_ = &writes_first_;
  record_read* reads_first_ = nullptr;
  record_read** reads_last_ = &reads_first_;
  std::size_t busy_ = 0;
  std::size_t housekeeping_ = 0;  // requests of headers, footers and their syncs
  bool pumping_ = false;
  file_io sync_;
  bool syncing_ = false;
  ssd::payload_digest digest_;

  ssd_index index_;
  recovery recovered_;
  std::atomic<std::uint64_t> segments_free_{0};
  std::atomic<std::uint64_t> segments_reclaimed_{0};
  std::atomic<std::uint64_t> records_reclaimed_{0};
  std::atomic<std::uint64_t> records_corrupt_{0};
  std::atomic<std::uint64_t> list_bytes_{0};
};

}  // namespace kvd
