#include "memory/arena.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <pthread.h>

#include "core/log.hpp"

namespace kvd {

namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
// Page faults of one process meet in the kernel's locks; more threads than this do not help.
constexpr unsigned touch_threads_max = 16;
constexpr std::uint64_t log_steps = 10;

}  // namespace

result<std::unique_ptr<arena>> arena::create(const options& how, const memory_facts& facts,
                                             numa_nodes& nodes, page_supply& pages) {
  assert(how.piece_bytes % huge_page_bytes == 0 && how.piece_bytes > 0);
  const auto ids = how.numa_affinity ? nodes.with_memory() : std::vector<int>{0};
  auto step = slab_pool::chunk_bytes_for(how.pool_bytes, how.hint_value_bytes);
  if (how.use_hugepages) step = std::max(step, huge_page_bytes);
  const auto each = how.pool_bytes / ids.size() / step * step;
  if (each == 0) {
    return fail(errc::invalid_argument,
                fmt::format("--pool-size {} is too small: {} NUMA node(s) need {} bytes each",
                            how.pool_bytes, ids.size(), step));
  }
  const auto total = each * ids.size();
  if (auto fits = check_claim(facts, total, how.use_hugepages); !fits) {
    return tl::unexpected(fits.error());
  }
  // A soft limit below the hard one is only a default; a failure shows when the pages are locked.
  if (auto raised = raise_memlock(); !raised) log::warn("pool", "{}", raised.error().detail);
  std::unique_ptr<arena> made(new arena(how, nodes, pages));
  for (const auto id : ids) {
    if (auto mapped = made->map_region(id, each); !mapped) return tl::unexpected(mapped.error());
  }
  if (total != how.pool_bytes) {
    log::info("pool", "rounded down to whole slabs asked={} pool={} slab={}", how.pool_bytes, total,
              step);
  }
  return made;
}

arena::arena(const options& how, numa_nodes& nodes, page_supply& pages)
    : how_(how), nodes_(nodes), pages_(pages) {}

arena::~arena() {
  cancel();
  join();
  for (const auto& region : regions_)
    pages_.unmap(region.base, region.bytes);
}

result<void> arena::map_region(int node, std::uint64_t bytes) {
  const auto at = pages_.map(bytes, how_.use_hugepages);
  if (!at) return tl::unexpected(at.error());
  regions_.push_back({node, *at, bytes});
  if (how_.numa_affinity && nodes_.with_memory().size() > 1) {
    if (auto bound = nodes_.prefer_memory(*at, bytes, node); !bound) return bound;
  }
  // Huge pages never leave memory; to lock them would count against RLIMIT_MEMLOCK for nothing.
  if (!how_.use_hugepages) {
    if (auto locked = pages_.lock(*at, bytes); !locked) return locked;
  }
  auto claim = std::make_unique<node_claim>();
  claim->region = regions_.back();
  claim->pieces = (bytes + how_.piece_bytes - 1) / how_.piece_bytes;
  claim->done.resize(claim->pieces);
  claims_.push_back(std::move(claim));
  total_ += bytes;
  return {};
}

unsigned arena::threads_for(const pool_region& region) const {
  if (how_.touch_threads != 0) return how_.touch_threads;
  const auto wanted = static_cast<unsigned>(
      std::min<std::uint64_t>((region.bytes + gib - 1) / gib, touch_threads_max));
  // A node of memory only is touched by one processor of another node.
  return std::clamp(wanted, 1u, std::max(nodes_.cpus_of(region.node), 1u));
}

void arena::start(progress_report report) {
  assert(threads_.empty());
  report_ = std::move(report);
  log::info("pool", "claiming bytes={} regions={} huge_pages={}", total_, regions_.size(),
            how_.use_hugepages);
  unsigned number = 0;
  // Counted before any starts: else the first could end while the second has yet to begin.
  for (const auto& claim : claims_)
    running_ += threads_for(claim->region);
  started_.store(true, std::memory_order_release);
  auto to_start = running_.load();
  try {
    threads_.reserve(to_start);
    for (const auto& claim : claims_) {
      for (unsigned i = 0; i < threads_for(claim->region); ++i, --to_start) {
        threads_.emplace_back([this, &into = *claim, number] { touch(into, number); });
        ++number;
      }
    }
  } catch (const std::exception& failed) {
    running_ -= to_start;
    keep({errc::io, fmt::format("cannot start a thread to claim the pool: {}", failed.what())});
  }
}

void arena::touch(node_claim& claim, unsigned number) noexcept {
  try {
    ::pthread_setname_np(::pthread_self(), fmt::format("kvd-touch-{}", number).c_str());
    if (how_.numa_affinity && nodes_.cpus_of(claim.region.node) > 0) {
      // Only speed suffers: the memory policy, not the thread, decides where pages lie.
      if (auto here = nodes_.run_here(claim.region.node); !here) {
        log::warn("pool", "{}", here.error().detail);
      }
    }
    while (!stop_.load(std::memory_order_relaxed)) {
      const auto piece = claim.next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= claim.pieces) break;
      const auto offset = piece * how_.piece_bytes;
      const auto bytes = std::min(how_.piece_bytes, claim.region.bytes - offset);
      if (auto touched = pages_.populate(claim.region.base + offset, bytes); !touched) {
        keep(touched.error());
        break;
      }
      finish_piece(claim, piece);
    }
  } catch (const std::exception& failed) {
    keep({errc::io, fmt::format("claiming the pool failed: {}", failed.what())});
  }
  running_.fetch_sub(1, std::memory_order_release);
}

void arena::finish_piece(node_claim& claim, std::uint64_t piece) {
  const std::lock_guard lock(claim.mutex);
  const auto ready = [&] { return std::min(claim.prefix * how_.piece_bytes, claim.region.bytes); };
  const auto before = ready();
  claim.done[piece] = true;
  while (claim.prefix < claim.pieces && claim.done[claim.prefix])
    ++claim.prefix;
  const auto gained = ready() - before;
  if (gained == 0) return;
  report_(claim.region.node, ready());
  const auto all_before = claimed_.fetch_add(gained, std::memory_order_relaxed);
  log_progress(all_before, all_before + gained);
}

void arena::log_progress(std::uint64_t before, std::uint64_t after) const noexcept {
  const auto step = [this](std::uint64_t bytes) { return bytes * log_steps / total_; };
  if (step(before) == step(after)) return;
  log::info("pool", "{} bytes={} of={} percent={}", after == total_ ? "claimed" : "claiming", after,
            total_, after * 100 / total_);
}

void arena::keep(error failure) noexcept {
  log::error("pool", "{}", failure.detail);
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = std::move(failure);
  stop_.store(true, std::memory_order_relaxed);
}

void arena::cancel() noexcept {
  stop_.store(true, std::memory_order_relaxed);
}

void arena::join() noexcept {
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

result<void> arena::wait() {
  join();
  const auto now = progress();
  if (now.failure) return tl::unexpected(*now.failure);
  if (now.claimed == now.total) return {};
  return fail(errc::cancelled, fmt::format("the claim of the pool was cancelled at {} of {} bytes",
                                           now.claimed, now.total));
}

arena::claim_state arena::progress() const {
  claim_state now{total_, 0, false, std::nullopt};
  // Read first: when no thread runs any more, the figures below are final.
  now.finished =
      started_.load(std::memory_order_acquire) && running_.load(std::memory_order_acquire) == 0;
  now.claimed = claimed_.load(std::memory_order_relaxed);
  const std::lock_guard lock(failure_mutex_);
  now.failure = failure_;
  return now;
}

}  // namespace kvd
