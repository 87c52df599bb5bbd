#pragma once
// The one claim of pinned memory: reserved at once, then touched in the background.
//
//   create(): checks limits, maps one region a NUMA node, marks it for locking     (milliseconds)
//   start():  threads kvd-touch-N fault the pages in, piece by piece, on their node  (seconds)
//             and report how many bytes from a region's start are ready: the pool grows by them
//   wait():   joins them; no pinned memory, no start: the caller ends on its error
//
// Owner: the composition root; it outlives the pool over its regions. start, wait and the
// destructor belong to one thread; cancel and progress to any. Never more than the configured
// bytes. Errors of touch threads are kept: wait() and progress() tell the first one.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "memory/memory_limits.hpp"
#include "memory/numa.hpp"
#include "memory/slab_pool.hpp"

namespace kvd {

// The system calls of a claim, behind a seam.
class page_supply {
public:
  virtual ~page_supply() = default;
  // Address space, aligned to huge_page_bytes. With `huge`, from reserved huge pages.
  virtual result<std::byte*> map(std::size_t bytes, bool huge) = 0;
  virtual void unmap(std::byte* at, std::size_t bytes) noexcept = 0;
  // Pages of the range stay in memory from the moment they come into being.
  virtual result<void> lock(std::byte* at, std::size_t bytes) = 0;
  // Brings all pages of the range into being, zeroed. Called by several threads at once.
  virtual result<void> populate(std::byte* at, std::size_t bytes) = 0;
  // The file that a range of map() is, from its first byte on, for others on this host to map
  // read-only; -1: none. The supply's, until unmap().
  virtual int file_of(const std::byte*) const noexcept { return -1; }
};

std::unique_ptr<page_supply> system_page_supply();
// Every range is a memfd of its own, sealed: nobody else can map it for writing or change its size.
// Pages are as large as those of system_page_supply() (Linux 6.1; before, only with `huge`).
std::unique_ptr<page_supply> shareable_page_supply();

class arena {
public:
  struct options {
    std::uint64_t pool_bytes;
    std::uint64_t hint_value_bytes;  // decides the slab size, of which regions are multiples
    bool use_hugepages;
    bool numa_affinity;         // false: one region, wherever its pages come from
    unsigned touch_threads;     // a node; 0: one a GiB, at most its processors
    std::uint64_t piece_bytes;  // touched between two reports; a multiple of huge_page_bytes
  };
  static constexpr std::uint64_t piece_bytes_usual = 64 << 20;

  // Runs on touch threads, one call a node at a time, `bytes` rising. Must not throw.
  using progress_report = std::function<void(int node, std::uint64_t bytes)>;

  struct claim_state {
    std::uint64_t total;    // bytes of all regions
    std::uint64_t claimed;  // bytes touched and pinned
    bool finished;          // nothing more will come: all claimed, failed or cancelled
    std::optional<error> failure;
  };

  // limit_exceeded with remedies from check_claim, invalid_argument for a pool below one slab a
  // node, io when the kernel refuses to map or lock. `nodes` and `pages` outlive the arena.
  static result<std::unique_ptr<arena>> create(const options& how, const memory_facts& facts,
                                               numa_nodes& nodes, page_supply& pages);
  // Cancels, joins and gives the memory back.
  ~arena();
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  std::span<const pool_region> regions() const noexcept { return regions_; }
  // REQUIRES: called once.
  void start(progress_report report);
  // Until every region is touched. The first error of any thread; cancelled after cancel().
  result<void> wait();
  // Touch threads stop after the piece they are at.
  void cancel() noexcept;
  claim_state progress() const;

private:
  struct node_claim {
    pool_region region{};
    std::uint64_t pieces = 0;
    std::atomic<std::uint64_t> next{0};  // piece to take
    std::mutex mutex;                    // pieces end out of order; reports go in order
    std::vector<bool> done;              // GUARDED_BY(mutex)
    std::uint64_t prefix = 0;            // GUARDED_BY(mutex), pieces done from the start
  };

  arena(const options& how, numa_nodes& nodes, page_supply& pages);
  result<void> map_region(int node, std::uint64_t bytes);
  unsigned threads_for(const pool_region& region) const;
  void touch(node_claim& claim, unsigned number) noexcept;
  void finish_piece(node_claim& claim, std::uint64_t piece);
  void log_progress(std::uint64_t before, std::uint64_t after) const noexcept;
  void keep(error failure) noexcept;
  void join() noexcept;

  options how_;
  numa_nodes& nodes_;
  page_supply& pages_;
  std::uint64_t total_ = 0;
  std::vector<pool_region> regions_;
  std::vector<std::unique_ptr<node_claim>> claims_;
  std::vector<std::thread> threads_;
  progress_report report_;
  std::atomic<bool> started_{false};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> claimed_{0};
  std::atomic<unsigned> running_{0};
  mutable std::mutex failure_mutex_;  // touched once, by the first thread that fails
  std::optional<error> failure_;      // GUARDED_BY(failure_mutex_)
};

}  // namespace kvd
