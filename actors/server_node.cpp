#include "actors/server_node.hpp"

#include <algorithm>
#include <thread>

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>
#include <fmt/format.h>

#include "actors/cache.hpp"
#include "actors/engine.hpp"
#include "actors/ssd.hpp"
#include "actors/ssd_files.hpp"
#include "core/limits.hpp"
#include "core/log.hpp"
#include "transport/http/listen_address.hpp"

namespace kvd {

namespace {

// Threads that actors run on: two actors, never busy for long.
constexpr std::size_t actor_threads = 2;
// Of the pool, in parts of 1000, that saves leave to what comes from SSD and peers.
constexpr std::uint32_t fetch_reserve = 20;
// Background eviction starts above the one and stops below the other, in parts of 1000.
constexpr std::uint32_t high_watermark = 985;
constexpr std::uint32_t low_watermark = 970;
// More copy threads than this only fight for the memory bus.
constexpr unsigned copy_threads_max = 8;
// Calls that are still open when everything has drained are sessions; they need no more time.
constexpr unsigned listener_grace_ms = 100;

unsigned copy_threads(const server_options& options) {
  if (options.copy_threads > 0) return options.copy_threads;
  return std::clamp(std::thread::hardware_concurrency(), 2U, copy_threads_max);
}

std::string hex_id(random_source& random) {
  return fmt::format("{:016x}{:016x}", random.next(), random.next());
}

std::string address_of(const std::string& bound, std::uint16_t port) {
  return fmt::format("{}:{}", bound.substr(0, bound.rfind(':')), port);
}

}  // namespace

actor_config::actor_config() {
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", actor_threads);
  add_message_types<caf::id_block::kvd>();
}

result<std::unique_ptr<server_node>> server_node::create(const server_options& options,
                                                         std::function<void()> on_shutdown) {
  for (const auto& address : {options.http_addr, options.addr}) {
    if (auto available = http::check_available(address); !available) {
      return tl::unexpected(available.error());
    }
  }
  std::unique_ptr<server_node> node(new server_node(options, std::move(on_shutdown)));
  if (auto claimed = node->claim_memory(); !claimed) return tl::unexpected(claimed.error());
  auto files = node->open_files();
  if (!files) return tl::unexpected(files.error());
  if (auto built = node->build_pool(*files); !built) return tl::unexpected(built.error());
  if (auto built = node->build_store(); !built) return tl::unexpected(built.error());
  node->build_ssd(std::move(*files));
  if (auto opened = node->open_sharing(); !opened) return tl::unexpected(opened.error());
  node->build_plane();
  if (auto listening = node->listen(); !listening) return tl::unexpected(listening.error());
  if (auto pushing = node->start_pushing(); !pushing) return tl::unexpected(pushing.error());
  // Last, so that a port that is taken costs no minutes of touching memory first.
  node->arena_->start([in = node.get()](int numa_node, std::uint64_t bytes) {
    in->pool_->grow(numa_node, bytes);
    in->saves_->wake_waiting();
    if (!in->ssd_) return;
    for (const auto& region : in->arena_->regions())
      if (region.node == numa_node && region.bytes == bytes) {
        in->ssd_->use_memory({region.base, region.bytes});
      }
  });
  log::info("node", "listening grpc={} http={} boot_id={}",
            address_of(options.addr, node->grpc_port()),
            address_of(options.http_addr, node->http_port()), node->boot_id_);
  return node;
}

server_node::server_node(const server_options& options, std::function<void()> on_shutdown)
    : options_(options), on_shutdown_(std::move(on_shutdown)), boot_id_(hex_id(random_)),
      nodes_(system_numa_nodes()),
      pages_(options.metaserver_addrs.empty() ? system_page_supply() : shareable_page_supply()) {}

result<void> server_node::claim_memory() {
  if (auto raised = raise_memlock(); !raised) log::warn("node", "{}", raised.error().detail);
  auto claim =
      arena::create({.pool_bytes = options_.pool_bytes,
                     .hint_value_bytes = options_.hint_value_bytes,
                     .use_hugepages = options_.use_hugepages,
                     .numa_affinity = !options_.disable_numa_affinity,
                     .touch_threads = 0,
                     .piece_bytes = arena::piece_bytes_usual},
                    read_memory_facts(memory_roots{}, read_memlock_limit()), *nodes_, *pages_);
  if (!claim) return tl::unexpected(claim.error());
  arena_ = std::move(*claim);
  return {};
}

result<server_node::ssd_files> server_node::open_files() {
  if (options_.ssd_cache_paths.empty()) return ssd_files{};
  return open_ssd_files(options_, random_, clock_);
}

// After the files are open: a part is moved to and from them as it lies in its slot.
result<void> server_node::build_pool(const ssd_files& files) {
  std::uint64_t alignment = limits::pool_unit_bytes;
  for (const auto& each : files)
    alignment = std::max<std::uint64_t>(alignment, each.file->alignment());
  auto pool = slab_pool::create({.regions = arena_->regions(),
                                 .hint_value_bytes = options_.hint_value_bytes,
                                 .blockwise = options_.blockwise_alloc,
                                 .slot_alignment = alignment});
  if (!pool) return tl::unexpected(pool.error());
  pool_ = std::move(*pool);
  return {};
}

result<void> server_node::build_store() {
  const auto name = options_.enable_lfu_admission ? "tinylfu" : options_.eviction_policy;
  auto policy = make_eviction_policy(name);
  if (!policy) return tl::unexpected(policy.error());
  const bool fetches = !options_.ssd_cache_paths.empty() || !options_.metaserver_addrs.empty();
  const auto reserve = fetches ? fetch_reserve : 0;
  const auto records = pool_->capacity_bytes() / limits::pool_unit_bytes;
  store_ = std::make_unique<block_store>(
      block_store::options{
          .records_max =
              static_cast<std::uint32_t>(std::min<std::uint64_t>(records, limits::blocks_max)),
          .hash_seed = random_.next(),
          .check_admission = (*policy)->name() == "tinylfu",
          .high_watermark = high_watermark - reserve,
          .low_watermark = low_watermark - reserve,
          .fetch_reserve = reserve,
      },
      *pool_, std::move(*policy), clock_, metrics_.store);
  leases_ =
      std::make_unique<lease_table>(*store_, clock_, random_, metrics_.store, options_.lease_ttl);
  auto ceiling = hit_ceiling::create(
      {.windows = options_.hll_windows, .bucket_bits = options_.hll_bucket_bits}, clock_);
  if (!ceiling) return tl::unexpected(ceiling.error());
  ceiling_ = std::move(*ceiling);
  observer_ = std::make_unique<ceiling_observer>(*ceiling_);
  return {};
}

void server_node::build_ssd(ssd_files files) {
  if (files.empty()) return;
  ssd_ = std::make_unique<ssd_tier>(
      ssd_tier_options{.write_queue_batches = options_.ssd_write_queue_depth,
                       .writes_inflight = options_.ssd_write_inflight,
                       .fetch_queue = options_.ssd_prefetch_queue_depth,
                       .reads_inflight = options_.ssd_prefetch_inflight,
                       .fetch_blocks_max = options_.max_prefetch_blocks},
      std::move(files), *store_, clock_, metrics_.ssd);
  store_->on_sealed(
      [to = ssd_.get()](std::span<const sealed_block> blocks) { to->sealed(blocks); });
}

result<void> server_node::open_sharing() {
  if (options_.metaserver_addrs.empty()) return {};
  auto opened = sharing_node::create({.options = options_,
                                      .store = *store_,
                                      .pool = *pool_,
                                      .memory = *arena_,
                                      .pages = *pages_,
                                      .ssd = ssd_.get(),
                                      .time = clock_,
                                      .random = random_,
                                      .metrics = metrics_,
                                      .boot_id = boot_id_});
  if (!opened) return tl::unexpected(opened.error());
  sharing_ = std::move(*opened);
  return {};
}

void server_node::build_plane() {
  lower_tier* below = ssd_.get();
  if (sharing_) below = &sharing_->tier();
  instances_ = std::make_unique<instance_table>();
  queries_ = std::make_unique<query_path>(*store_, *leases_, observer_.get(), below);
  saves_ = std::make_unique<save_path>(*store_, clock_, metrics_.copy);
  loads_ = std::make_unique<load_path>(*store_, *leases_, clock_, metrics_.copy);
  device_ = std::make_unique<host_device>(host_device_options{.threads = copy_threads(options_),
                                                              .jobs_max = limits::copy_jobs_max,
                                                              .numa_node = -1},
                                          clock_, metrics_.copy);
  opener_ = std::make_unique<host_opener>(*device_);
  registry_ = std::make_unique<instance_registry>(*instances_, *store_, *leases_, *opener_,
                                                  metrics_.control);
  actors_ = std::make_unique<caf::actor_system>(actor_config_);
  engine_ = actors_->spawn(engine, registry_.get(), &metrics_.control,
                           static_cast<const clock*>(&clock_));
  cache_ = actors_->spawn(cache, cache_parts{.store = store_.get(),
                                             .leases = leases_.get(),
                                             .saves = saves_.get(),
                                             .instances = instances_.get(),
                                             .time = &clock_,
                                             .metrics = &metrics_.control});
  if (ssd_) {
    ssd_life_ =
        actors_->spawn(keep_ssd, ssd_.get(), &metrics_.control, static_cast<const clock*>(&clock_));
  }
  if (sharing_) sharing_->spawn(*actors_);
  // The registry outlives the actors, so it holds no strong handles.
  using weak = caf::weak_actor_ptr;
  const auto ssd = caf::actor_cast<weak>(ssd_life_);
  const auto peers = sharing_ ? caf::actor_cast<weak>(sharing_->peers_actor()) : weak();
  registry_->on_gone([ssd, peers](auto serial) {
    if (auto to = caf::actor_cast<ssd_actor>(ssd)) {
      caf::anon_send(to, message::instance_gone{serial});
    }
    if (auto to = caf::actor_cast<peer_actor>(peers)) {
      caf::anon_send(to, message::instance_gone{serial});
    }
  });
  store_->on_pressure([to = cache_] { caf::anon_send(to, message::trim{}); });
  control_ = std::make_unique<engine_adapter>(engine_, on_shutdown_);
}

result<void> server_node::listen() {
  backend_ = std::make_unique<server_http>(server_view{.options = options_,
                                                       .time = clock_,
                                                       .metrics = metrics_,
                                                       .claim = *arena_,
                                                       .pool = *pool_,
                                                       .store = *store_,
                                                       .instances = *instances_,
                                                       .ceiling = *ceiling_,
                                                       .ssd = ssd_.get(),
                                                       .sharing = sharing_.get(),
                                                       .draining = draining_,
                                                       .pusher = [this] { return pushing_.load(); },
                                                       .boot_id = boot_id_,
                                                       .engine = engine_,
                                                       .cache = cache_});
  auto admin =
      http::server::start({.address = options_.http_addr, .admin_token = options_.admin_token},
                          server_routes(*backend_));
  if (!admin) return tl::unexpected(admin.error());
  http_ = std::move(*admin);
  auto* const desk = sharing_ ? &sharing_->desk() : nullptr;
  auto served = engine_server::start(options_.addr, engine_plane{.instances = *instances_,
                                                                 .queries = *queries_,
                                                                 .saves = *saves_,
                                                                 .loads = *loads_,
                                                                 .leases = *leases_,
                                                                 .control = *control_,
                                                                 .metrics = metrics_.rpc,
                                                                 .time = clock_,
                                                                 .draining = draining_,
                                                                 .boot_id = boot_id_,
                                                                 .transfers = desk});
  if (!served) return tl::unexpected(served.error());
  grpc_ = std::move(*served);
  if (sharing_) sharing_->begin();
  return {};
}

result<void> server_node::start_pushing() {
  if (options_.metrics_otel_endpoint.empty()) return {};
  auto pusher = otlp::exporter::start({.endpoint = options_.metrics_otel_endpoint,
                                       .period = options_.metrics_period,
                                       .resource = {{"service.instance.id", boot_id_}}},
                                      [this] { return backend_->metrics_for_push(); });
  if (!pusher) return tl::unexpected(pusher.error());
  pusher_ = std::move(*pusher);
  pushing_.store(pusher_.get());
  return {};
}

std::optional<error> server_node::claim_failure() const {
  return arena_->progress().failure;
}

void server_node::begin_drain() noexcept {
  if (!draining_.exchange(true) && sharing_) sharing_->leave();
}

bool server_node::drained() const noexcept {
  return loads_->running() == 0 && saves_->running() == 0 && (!ssd_ || ssd_->quiet()) &&
         (!sharing_ || sharing_->gone());
}

server_node::~server_node() {
  if (arena_) {
    arena_->cancel();
    [[maybe_unused]] const auto joined = arena_->wait();
  }
  // Listeners first: nothing new comes in, and open sessions end.
  if (grpc_) grpc_->stop(listener_grace_ms);
  if (http_) http_->stop(listener_grace_ms);
  if (pusher_) pusher_->stop();
  sharing_.reset();
  // Then the copy threads: what they call back (store, paths, actors) is all still there.
  device_.reset();
  if (store_) store_->on_pressure({});
  if (actors_) {
    caf::anon_send(engine_, message::stop{});
    caf::anon_send(cache_, message::stop{});
    if (ssd_life_) caf::anon_send(ssd_life_, message::stop{});
    engine_ = nullptr;
    cache_ = nullptr;
    ssd_life_ = nullptr;
  }
  control_.reset();
  http_.reset();
  backend_.reset();
}

}  // namespace kvd
