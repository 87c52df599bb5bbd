#pragma once
// The SSD tier: what was sealed goes to disk behind the saves, what RAM lacks comes back before the
// loads.
//
//   seal -> sealed() -> bounded queue -> worker -> segment log           full: left out and counted
//   query -> fetch() -> bounded queue -> claim slots, evict -> worker -> read, check, seal
//
// Several files are one tier: a block's key picks the file it is written to, all are asked for it.
// An error of a file switches the tier off until a later try: RAM goes on, queued writes are
// dropped, look-ups find nothing.
//
// Threads: any. Owner: the node; the SSD actor calls tick().

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"
#include "memory/lower_tier.hpp"
#include "storage/open_file.hpp"
#include "storage/ssd_fetch.hpp"
#include "storage/ssd_worker.hpp"

namespace kvd {

struct ssd_tier_options {
  std::size_t write_queue_batches = 8;  // of ssd_tier::batch_blocks, over all files
  std::size_t writes_inflight = 2;      // blocks, over all files; one a file at least
  std::size_t fetch_queue = 2;          // fetches that wait to be taken in
  std::size_t reads_inflight = 16;      // blocks, over all files; one a file at least
  std::size_t fetch_blocks_max = 800;   // of all fetches together
  duration fetch_idle_max = std::chrono::seconds(60);
  bool own_threads = true;  // else whoever made the tier calls step()
};

class ssd_tier final : public stored_tier, private ssd_events {
public:
  static constexpr std::size_t batch_blocks = 4096;

  struct opened_file {
    std::unique_ptr<block_file> file;
    std::unique_ptr<segment_log> log;
    file_identity identity;  // without a path: not looked after
  };
  // The references outlive it. REQUIRES: at least one file.
  ssd_tier(const ssd_tier_options& how, std::vector<opened_file> files, block_store& store,
           const clock& time, ssd_metrics& metrics);
  ~ssd_tier() override;

  void sealed(std::span<const sealed_block> blocks) noexcept;
  // Memory of the pool that is touched and stays: files that can register it.
  void use_memory(std::span<std::byte> region) noexcept;

  progress poll(const query_id& id) noexcept override;
  bool fetch(const query_id& id, scope_id in, hash_list asked, std::span<const block_index> pinned,
             bool whole) override;
  brought_up settle(const query_id& id) noexcept override;
  bool holds(scope_id in, std::string_view hash) const noexcept override;

  // Fetches of an instance that is gone are given up.
  void forget_instance(std::uint64_t serial);
  // Gives up what nobody asked for again, tries to switch a tier that is off on again, and says
  // once when a file was removed or cut under the server.
  void tick();
  // Nothing is queued or under way.
  bool quiet() const;
  // One round of the worker of a file, see ssd_worker. REQUIRES: !own_threads
  void step(std::size_t file) noexcept { workers_[file]->step(); }

  struct report {
    bool on = true;
    std::string why_off;
    std::size_t fetches = 0;       // that a query still waits for, or has not asked about
    std::size_t fetch_blocks = 0;  // of those that run, or wait to
    struct file {
      std::string path;
      std::string backend;
      std::string trouble;  // it was removed or cut; empty: neither
      ssd_worker::memory_use memory;
      segment_log::usage_report log;
    };
    std::vector<file> files;
  };
  report status() const;

private:
  void resume();
  void look_after_files();
  void order_over(const std::shared_ptr<ssd_fetch>& fetch) noexcept override;
  void write_failed(int error) noexcept override;
  bool idle(ssd_worker& worker) noexcept override;

  std::size_t stored_behind(scope_id in, hash_list asked, std::size_t from) const;
  ssd_worker* holder_of(const record_key& key) const noexcept;
  std::size_t reserve(std::size_t wanted, bool whole) noexcept;
  void take_in(const std::shared_ptr<ssd_fetch>& fetch);
  void retry_busy();
  std::vector<std::uint32_t> pin_present(ssd_fetch& fetch,
                                         std::span<const std::uint32_t> positions);
  void claim_or_give_up(const std::shared_ptr<ssd_fetch>& fetch,
                        std::span<const std::uint32_t> positions) noexcept;
  void claim_and_order(const std::shared_ptr<ssd_fetch>& fetch,
                       std::span<const std::uint32_t> positions);
  void order(const std::shared_ptr<ssd_fetch>& fetch, std::uint32_t position,
             std::vector<part_claim> claims);

  const ssd_tier_options options_;
  std::vector<file_identity> identities_;
  block_store& store_;
  const clock& clock_;
  ssd_metrics& metrics_;
  ssd_fetch_table fetches_;
  std::atomic<std::size_t> fetch_blocks_{0};
  std::atomic<bool> on_{true};

  std::mutex intake_mutex_;  // held by the first worker while it takes in fetches
  bool started_ = false;     // GUARDED_BY(intake_mutex_): all workers are there
  std::vector<std::shared_ptr<ssd_fetch>> waiting_;  // GUARDED_BY(intake_mutex_): have busy blocks

  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<ssd_fetch>> queued_;  // GUARDED_BY(mutex_)
  std::vector<std::string> troubles_;              // GUARDED_BY(mutex_), of each file
  std::string why_off_;                            // GUARDED_BY(mutex_)
  duration retry_after_{};                         // GUARDED_BY(mutex_)
  time_point retry_at_{};                          // GUARDED_BY(mutex_)

  std::vector<std::unique_ptr<ssd_worker>> workers_;  // last: their threads use all of the above
};

}  // namespace kvd
