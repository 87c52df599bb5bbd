#pragma once
// The worker of one SSD file: writes sealed blocks behind, reads blocks that fetches want.
//
// It takes what is queued, hands it to the log, and runs the completions, so that log and file have
// one user. Blocks wait for their write without a pin: one that is evicted first is skipped.
//
// Threads: any for the queues; the rest on its own thread, or, in a simulation, on that of whoever
// calls step().

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"
#include "storage/block_file.hpp"
#include "storage/segment_log.hpp"
#include "storage/ssd_fetch.hpp"

namespace kvd {

// Bytes of a part as the file moves them; 0 when that is more than its slot holds: direct I/O on
// sectors of 4096 would reach into the next slot.
std::uint64_t piece_bytes(const block_store& store, const scope::part& part,
                          const block_file& file) noexcept;
// Whether all parts of a scope's blocks can be moved.
bool fits_file(const block_store& store, const scope& in, const block_file& file) noexcept;

// One block that a fetch reads: a claim of each of its parts.
struct ssd_order {
  std::shared_ptr<ssd_fetch> fetch;
  std::uint32_t position = 0;  // in fetch->hashes
  std::vector<part_claim> claims;
  std::vector<io_piece> pieces;
  record_read read;
  time_point begun{};
  class ssd_worker* home = nullptr;
};

// What workers tell the tier.
class ssd_events {
public:
  virtual ~ssd_events() = default;
  // An order is over, read or not; the order is gone.
  virtual void order_over(const std::shared_ptr<ssd_fetch>& fetch) noexcept = 0;
  // The file refused to write: the tier should be switched off.
  virtual void write_failed(int error) noexcept = 0;
  // Called often, on the worker's thread: a chance to take in fetches. True when more is to do
  // soon.
  virtual bool idle(ssd_worker& worker) noexcept = 0;
};

struct ssd_worker_options {
  std::size_t write_queue_blocks = 0;
  std::size_t writes_inflight = 1;
  std::size_t reads_inflight = 1;
  bool own_thread = true;  // else nothing happens but in step() and the destructor
};

class ssd_worker {
public:
  // The references outlive it.
  ssd_worker(const ssd_worker_options& how, std::unique_ptr<block_file> file,
             std::unique_ptr<segment_log> log, block_store& store, const clock& time,
             ssd_metrics& metrics, ssd_fetch_table& fetches, ssd_events& events);
  // Drops what is queued, ends what is under way, closes the log.
  ~ssd_worker();
  ssd_worker(const ssd_worker&) = delete;
  ssd_worker& operator=(const ssd_worker&) = delete;

  const segment_log& log() const noexcept { return *log_; }
  const block_file& file() const noexcept { return *file_; }

  // Queues blocks for writing; what does not fit is left out. Returns how many were taken.
  std::size_t write(std::span<const sealed_block> blocks) noexcept;
  void read(std::unique_ptr<ssd_order> order);
  void drop_writes() noexcept;
  // Registers memory that blocks lie in, on the worker's thread and when it comes to it.
  void use_memory(std::span<std::byte> region);
  struct memory_use {
    std::size_t buffers = 0;
    std::string refused;  // why not all is registered; empty: it is, or none was offered
  };
  memory_use registered() const;
  void wake() noexcept { file_->wake(); }
  bool queues_empty() const noexcept;
  // One round of work: starts what is queued and ends what the file has done; never waits.
  // REQUIRES: no thread of its own.
  void step() noexcept;

private:
  struct write_slot;
  // Until it was told to stop and all has ended.
  void run() noexcept;
  // Starts what is queued. True when more is to do soon, although nothing may end meanwhile.
  bool start() noexcept;
  bool start_writes();
  bool start_write(const sealed_block& block);
  void written(write_slot& slot, int error) noexcept;
  bool start_reads();
  void was_read(std::unique_ptr<ssd_order> order, int error) noexcept;
  bool register_some();
  void count_operations() noexcept;
  void seal(ssd_order& order);
  static record_identity identity_of(const scope& in, std::string_view hash);

  const ssd_worker_options options_;
  std::unique_ptr<block_file> file_;
  std::unique_ptr<segment_log> log_;
  block_store& store_;
  const clock& clock_;
  ssd_metrics& metrics_;
  ssd_fetch_table& fetches_;
  ssd_events& events_;

  std::vector<std::unique_ptr<write_slot>> slots_;
  std::vector<write_slot*> free_slots_;
  std::size_t reads_running_ = 0;
  std::vector<std::uint32_t> cells_;  // 0, 1, 2, ...

  mutable std::mutex mutex_;                       // held for moves in and out of the queues
  std::vector<sealed_block> ring_;                 // GUARDED_BY(mutex_), a fixed ring
  std::size_t ring_head_ = 0;                      // GUARDED_BY(mutex_)
  std::size_t ring_size_ = 0;                      // GUARDED_BY(mutex_)
  std::deque<std::unique_ptr<ssd_order>> orders_;  // GUARDED_BY(mutex_)
  std::deque<std::span<std::byte>> to_register_;   // GUARDED_BY(mutex_)
  memory_use registered_;                          // GUARDED_BY(mutex_)
  io_counts counted_;                              // what the metrics have
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // unless the simulation steps
};

}  // namespace kvd
