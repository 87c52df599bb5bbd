#include "storage/ssd_tier.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "core/log.hpp"

namespace kvd {

namespace {

constexpr std::chrono::seconds retry_first{5};
constexpr std::chrono::seconds retry_slowest{300};
// A block that somebody else is copying is waited for that long; copies take milliseconds.
constexpr std::chrono::seconds busy_max{10};

record_key key_in(const scope& in, std::string_view hash) {
  return key_of({in.usage->name, in.group, in.fingerprint, hash});
}

}  // namespace

ssd_tier::ssd_tier(const ssd_tier_options& how, std::vector<opened_file> files, block_store& store,
                   const clock& time, ssd_metrics& metrics)
    : options_(how), store_(store), clock_(time), metrics_(metrics), fetches_(store) {
  metrics_.up.set(1);
  const auto share = [&files](std::size_t total) {
    return std::max<std::size_t>(1, total / files.size());
  };
  const ssd_worker_options each{.write_queue_blocks = share(how.write_queue_batches * batch_blocks),
                                .writes_inflight = share(how.writes_inflight),
                                .reads_inflight = share(how.reads_inflight),
                                .own_thread = how.own_threads};
  // A worker calls idle() from the start, so that nobody may see the list grow.
  workers_.reserve(files.size());
  waiting_.reserve(options_.fetch_blocks_max);  // each has a block at least
  troubles_.resize(files.size());
  for (auto& file : files) {
    identities_.push_back(std::move(file.identity));
    workers_.push_back(std::make_unique<ssd_worker>(each, std::move(file.file), std::move(file.log),
                                                    store, time, metrics, fetches_,
                                                    static_cast<ssd_events&>(*this)));
  }
  {
    const std::lock_guard intake(intake_mutex_);
    started_ = true;
  }
  workers_.front()->wake();
}

ssd_tier::~ssd_tier() {
  on_.store(false);
  {
    const std::lock_guard lock(mutex_);
    queued_.clear();
  }
  fetches_.drop_idle(time_point::max());
  // From here on the first worker takes in nothing and so orders at none of the others.
  const std::lock_guard intake(intake_mutex_);
  started_ = false;
}

void ssd_tier::sealed(std::span<const sealed_block> blocks) noexcept {
  if (!on_.load(std::memory_order_relaxed)) return;
  std::size_t taken = 0;
  if (workers_.size() == 1) {
    taken = workers_.front()->write(blocks);
  } else {
    for (const auto& block : blocks)
      taken += workers_[block.block % workers_.size()]->write(std::span(&block, 1));
  }
  metrics_.write_queue_full.add(blocks.size() - taken);
}

void ssd_tier::use_memory(std::span<std::byte> region) noexcept {
  try {
    for (const auto& worker : workers_)
      worker->use_memory(region);
  } catch (const std::exception& thrown) {
    log::warn("ssd", "blocks move without registered memory: {}", thrown.what());
  }
}

// -- fetches -------------------------------------------------------------------------------------

lower_tier::progress ssd_tier::poll(const query_id& id) noexcept {
  const auto fetch = fetches_.find(id);
  if (!fetch) return progress::none;
  const std::lock_guard lock(fetch->mutex);
  fetch->heard_of = clock_.now();
  return fetch->over.load() ? progress::over : progress::loading;
}

brought_up ssd_tier::settle(const query_id& id) noexcept {
  const auto fetch = fetches_.take(id);
  return {.ssd = fetch ? fetches_.release(*fetch) : 0, .peers = 0};
}

bool ssd_tier::holds(scope_id in, std::string_view hash) const noexcept {
  return on_.load(std::memory_order_relaxed) &&
         holder_of(key_in(store_.scope_of(in), hash)) != nullptr;
}

ssd_worker* ssd_tier::holder_of(const record_key& key) const noexcept {
  for (const auto& worker : workers_)
    if (worker->log().contains(key)) return worker.get();
  return nullptr;
}

// How many blocks of `asked` are stored without a gap from position `from` on.
std::size_t ssd_tier::stored_behind(scope_id in, hash_list asked, std::size_t from) const {
  const auto& scope = store_.scope_of(in);
  auto at = from;
  while (at < asked.size() && holder_of(key_in(scope, *asked[at])) != nullptr)
    ++at;
  return at - from;
}

// Takes up to `wanted` blocks from the bound of all fetches; all or none when `whole`.
std::size_t ssd_tier::reserve(std::size_t wanted, bool whole) noexcept {
  auto used = fetch_blocks_.load();
  std::size_t granted = 0;
  do {
    granted =
        std::min(wanted, options_.fetch_blocks_max - std::min(used, options_.fetch_blocks_max));
    if (whole && granted < wanted) granted = 0;
  } while (granted > 0 && !fetch_blocks_.compare_exchange_weak(used, used + granted));
  metrics_.fetch_blocks_refused.add(wanted - granted);
  return granted;
}

bool ssd_tier::fetch(const query_id& id, scope_id in, hash_list asked,
                     std::span<const block_index> pinned, bool whole) {
  if (!on_.load(std::memory_order_relaxed)) return false;
  const auto stored = stored_behind(in, asked, pinned.size());
  if (stored == 0 || (whole && pinned.size() + stored < asked.size())) return false;
  const auto granted = reserve(stored, whole);
  if (granted == 0) return false;
  auto fetch = std::make_shared<ssd_fetch>();
  fetch->instance = id.instance;
  fetch->request = std::string(id.request);
  fetch->group = id.group;
  fetch->in = in;
  fetch->hashes.reserve(granted);
  for (const auto* hash : asked.subspan(pinned.size(), granted))
    fetch->hashes.push_back(*hash);
  fetch->positions.resize(granted);
  std::iota(fetch->positions.begin(), fetch->positions.end(), 0U);
  fetch->begun = fetch->heard_of = clock_.now();
  fetch->pins.assign(pinned.begin(), pinned.end());
  {
    const std::lock_guard lock(mutex_);
    if (queued_.size() >= options_.fetch_queue) {
      fetch_blocks_.fetch_sub(granted);
      metrics_.fetch_queue_full.add();
      return false;
    }
    if (!fetches_.add(fetch)) {
      // Another poll of the same query was first; this one waits for what that one started.
      fetch_blocks_.fetch_sub(granted);
      store_.unpin(pinned);
      return true;
    }
    queued_.push_back(fetch);
  }
  workers_.front()->wake();
  return true;
}

// The first worker takes in fetches; only one does, so that blocks of one scope do not wait for
// each other crosswise.
bool ssd_tier::idle(ssd_worker& worker) noexcept {
  const std::lock_guard intake(intake_mutex_);
  if (!started_ || &worker != workers_.front().get()) return false;
  while (true) {
    std::shared_ptr<ssd_fetch> next;
    {
      const std::lock_guard lock(mutex_);
      if (queued_.empty()) break;
      next = std::move(queued_.front());
      queued_.pop_front();
    }
    take_in(next);
  }
  retry_busy();
  return !waiting_.empty();
}

// What cannot be claimed for want of memory is not waited for: the query gets what is there.
void ssd_tier::claim_or_give_up(const std::shared_ptr<ssd_fetch>& fetch,
                                std::span<const std::uint32_t> positions) noexcept {
  try {
    claim_and_order(fetch, positions);
  } catch (const std::exception& thrown) {
    log::error("ssd", "a fetch was given up: {}", thrown.what());
    metrics_.thread_failures.add();
    fetch->busy.clear();
  }
}

void ssd_tier::take_in(const std::shared_ptr<ssd_fetch>& fetch) {
  fetch->reads.store(1);
  if (!fetch->cancelled.load()) claim_or_give_up(fetch, fetch->positions);
  if (fetch->busy.empty()) {
    order_over(fetch);
  } else {
    waiting_.push_back(fetch);
  }
}

void ssd_tier::retry_busy() {
  for (auto& fetch : waiting_) {
    const auto positions = std::exchange(fetch->busy, {});
    const bool late = clock_.now() - fetch->begun > busy_max;
    if (!late && !fetch->cancelled.load()) claim_or_give_up(fetch, positions);
    if (fetch->busy.empty()) order_over(std::exchange(fetch, nullptr));
  }
  std::erase(waiting_, nullptr);
}

// Pins those of the positions that are in RAM, so that making room does not evict what the fetch is
// for, and returns the others.
std::vector<std::uint32_t> ssd_tier::pin_present(ssd_fetch& fetch,
                                                 std::span<const std::uint32_t> positions) {
  std::vector<const std::string*> names;
  for (const auto position : positions)
    names.push_back(&fetch.hashes[position]);
  std::vector<block_index> pinned;
  std::vector<std::uint32_t> present;
  store_.pin_members(fetch.in, names, pinned, present);
  fetches_.hold(fetch, pinned, 0);
  std::vector<std::uint32_t> absent;
  auto next = present.begin();
  for (std::uint32_t i = 0; i < positions.size(); ++i) {
    if (next != present.end() && *next == i) {
      ++next;
    } else {
      absent.push_back(positions[i]);
    }
  }
  return absent;
}

// Claims every part of each block and orders its read; what others are copying goes to `busy`, and
// so does what became present in between: it is pinned the next time.
void ssd_tier::claim_and_order(const std::shared_ptr<ssd_fetch>& fetch,
                               std::span<const std::uint32_t> positions) {
  const auto absent = pin_present(*fetch, positions);
  const auto parts = static_cast<std::uint32_t>(store_.scope_of(fetch->in).parts.size());
  std::vector<const std::string*> names;
  names.reserve(fetch->hashes.size());
  for (const auto& hash : fetch->hashes)
    names.push_back(&hash);
  std::vector<std::vector<part_claim>> claims(fetch->hashes.size());
  std::uint32_t became_present = 0;
  auto left = absent;
  for (std::uint32_t part = 0; part < parts && !left.empty(); ++part) {
    std::vector<part_claim> got;
    const auto counts = store_.claim({.in = fetch->in,
                                      .part = part,
                                      .numa_node = -1,
                                      .origin = 0,
                                      .hashes = names,
                                      .positions = left,
                                      .fetch = true},
                                     got, fetch->busy);
    became_present += counts.present;
    left.clear();
    for (const auto& claim : got) {
      claims[claim.position].push_back(claim);
      if (!claim.partial) left.push_back(claim.position);
    }
  }
  const std::vector<std::uint32_t> copied_by_others = fetch->busy;
  for (const auto position : absent) {
    auto& mine = claims[position];
    if (mine.size() == parts && !mine.back().partial) {
      order(fetch, position, std::move(mine));
      continue;
    }
    // In RAM meanwhile, or being saved part by part, or without room: what is claimed goes back.
    store_.abandon(mine);
    const bool listed = std::find(copied_by_others.begin(), copied_by_others.end(), position) !=
                        copied_by_others.end();
    if (became_present > 0 && !listed) fetch->busy.push_back(position);
  }
}

void ssd_tier::order(const std::shared_ptr<ssd_fetch>& fetch, std::uint32_t position,
                     std::vector<part_claim> claims) {
  const auto& in = store_.scope_of(fetch->in);
  auto* const holder = holder_of(key_in(in, fetch->hashes[position]));
  if (holder == nullptr || !fits_file(store_, in, holder->file())) {  // given up since the query
    store_.abandon(claims);
    return;
  }
  auto order = std::make_unique<ssd_order>();
  order->fetch = fetch;
  order->position = position;
  for (std::size_t part = 0; part < claims.size(); ++part) {
    order->pieces.push_back(
        {claims[part].address, piece_bytes(store_, in.parts[part], holder->file())});
  }
  order->claims = std::move(claims);
  fetch->reads.fetch_add(1);
  holder->read(std::move(order));
}

void ssd_tier::order_over(const std::shared_ptr<ssd_fetch>& fetch) noexcept {
  if (fetch->reads.fetch_sub(1) != 1) return;
  fetch_blocks_.fetch_sub(fetch->hashes.size());
  fetch->over.store(true);
}

void ssd_tier::forget_instance(std::uint64_t serial) {
  fetches_.drop_instance(serial);
}

// -- on and off ----------------------------------------------------------------------------------

void ssd_tier::write_failed(int error) noexcept {
  duration pause{};
  {
    // As one with resume(), which would else switch a tier on that has no time of its retry yet.
    const std::lock_guard lock(mutex_);
    if (!on_.exchange(false)) return;
    metrics_.up.set(0);
    why_off_ = std::strerror(error);
    const auto now = clock_.now();
    const bool anew = retry_after_ == duration{} || now - retry_at_ > retry_slowest;
    retry_after_ = anew ? retry_first : std::min<duration>(retry_after_ * 2, retry_slowest);
    retry_at_ = now + retry_after_;
    pause = retry_after_;
  }
  metrics_.switched_off.add();
  for (const auto& worker : workers_)
    worker->drop_writes();
  log::error("ssd", "the SSD tier is off, RAM goes on: writing failed: {}; next try in {} s",
             std::strerror(error), std::chrono::duration_cast<std::chrono::seconds>(pause).count());
}

// Switches a tier that is off on again when its time has come.
void ssd_tier::resume() {
  {
    const std::lock_guard lock(mutex_);
    if (on_.load() || clock_.now() < retry_at_) return;
    why_off_.clear();
    metrics_.up.set(1);
    on_.store(true);
  }
  log::info("ssd", "the SSD tier is on again");
}

void ssd_tier::tick() {
  metrics_.fetches_idle.add(fetches_.drop_idle(clock_.now() - options_.fetch_idle_max));
  look_after_files();
  resume();
}

void ssd_tier::look_after_files() {
  for (std::size_t i = 0; i < identities_.size(); ++i) {
    if (identities_[i].path.empty()) continue;
    const auto health = file_health(identities_[i]);
    auto trouble = health ? std::string() : health.error().detail;
    const std::lock_guard lock(mutex_);
    if (trouble == troubles_[i]) continue;
    if (!trouble.empty()) {
      log::error("ssd", "{}; what is read is checked, what is lost is a miss", trouble);
    }
    troubles_[i] = std::move(trouble);
  }
}

bool ssd_tier::quiet() const {
  const auto idle = [](const auto& worker) {
    return worker->queues_empty() && worker->log().busy() == 0;
  };
  return std::all_of(workers_.begin(), workers_.end(), idle);
}

ssd_tier::report ssd_tier::status() const {
  report now;
  now.on = on_.load();
  now.fetches = fetches_.size();
  now.fetch_blocks = fetch_blocks_.load();
  const std::lock_guard lock(mutex_);
  now.why_off = why_off_;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    now.files.push_back({identities_[i].path, std::string(workers_[i]->file().backend()),
                         troubles_[i], workers_[i]->registered(), workers_[i]->log().usage()});
  }
  return now;
}

}  // namespace kvd
