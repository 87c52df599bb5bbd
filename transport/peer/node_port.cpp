#include "transport/peer/node_port.hpp"

#include <algorithm>
#include <cassert>
#include <csignal>

#include <fmt/format.h>
#include <pthread.h>

#include "core/limits.hpp"
#include "core/log.hpp"
#include "transport/peer/mapped_link.hpp"
#include "transport/peer/peer_devices.hpp"
#include "transport/peer/stream_link.hpp"
#include "transport/peer/ucx_link.hpp"

namespace kvd {

namespace {

constexpr auto idle_turn = std::chrono::seconds(1);  // how often unused links are looked for

// Signals are for the main thread; only those that an instruction raises stay with the thread.
void keep_signals_away() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int synchronous : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP})
    sigdelset(&blocked, synchronous);
  ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace

node_port::node_port(const peer_options& options, const peer_pool& pool, const clock& ticking,
                     peer_metrics& peer_counts)
    : options_(options), pool_(pool), time_(ticking), metrics_(peer_counts) {
  how.inflight_bytes_max = options.inflight_bytes_max;
  how.cut = {options.piece_bytes_max, transfer_fragments_max};
  how.connect_timeout = options.connect_timeout;
  ticks = &time_;
  remote_context::metrics = &peer_counts;
}

node_port::~node_port() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    loop_.wake();
    thread_.join();
  }
}

result<void> node_port::start(random_source& random) {
  if (pool_.regions.size() > limits::peer_regions_max) {
    return fail(errc::limit_exceeded, fmt::format("a pool of {} regions; peers take {}",
                                                  pool_.regions.size(), limits::peer_regions_max));
  }
  if (auto chosen = choose_links(); !chosen) return chosen;
  if (auto chosen = choose_devices(); !chosen) return chosen;
  own_.boot_id = options_.boot_id;
  if (own_.boot_id.empty()) {
    own_.boot_id.resize(boot_id_bytes);
    random.fill(std::as_writable_bytes(std::span(own_.boot_id)));
  }
  if (own_.boot_id.size() != boot_id_bytes) {
    return fail(errc::invalid_argument,
                fmt::format("a boot id has {} bytes, not {}", boot_id_bytes, own_.boot_id.size()));
  }
  own_.key.resize(peer_key_bytes);
  random.fill(std::as_writable_bytes(std::span(own_.key)));
  for (const auto& region : pool_.regions)
    own_.regions.push_back({region.pool_offset, region.bytes});
  if (auto opened = loop_.open(); !opened) return opened;
  if (allowed_.mapped) {
    if (auto offered = offer_mapped(); !offered) return offered;
  }
  if (allowed_.tcp) {
    if (auto offered = offer_stream(); !offered) return offered;
  }
  if (allowed_.rdma) {
    if (auto offered = offer_rdma(); !offered) return offered;
  }
  auto encoded = encode(own_);
  if (!encoded) return tl::unexpected(std::move(encoded.error()));
  encoded_ = std::move(*encoded);
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "kvd-peer");
    keep_signals_away();
    run();
  });
  return {};
}

result<void> node_port::choose_links() {
  for (const auto& link : options_.links) {
    const bool all = link == "auto";
    if (!all && link != "shm" && link != "tcp" && link != "rdma") {
      return fail(errc::invalid_argument,
                  fmt::format("link {} is none of auto, shm, tcp, rdma", link));
    }
    allowed_.mapped = allowed_.mapped || all || link == "shm";
    allowed_.tcp = allowed_.tcp || all || link == "tcp";
    allowed_.rdma = allowed_.rdma || all || link == "rdma";
  }
  return {};
}

result<void> node_port::choose_devices() {
  auto chosen = choose_peer_devices(options_.nics);
  if (!chosen) return tl::unexpected(std::move(chosen.error()));
  devices_ = std::move(chosen->network);
  rdma_devices_ = std::move(chosen->rdma);
  // Without --nics the routing table knows best where to send from.
  if (options_.nics.empty()) return {};
  for (const auto& device : devices_)
    local_.push_back(device.addresses.front());
  return {};
}

result<void> node_port::offer_mapped() {
  const auto& regions = pool_.regions;
  const bool files = std::all_of(regions.begin(), regions.end(),
                                 [](const peer_region& region) { return region.memfd >= 0; });
  if (regions.empty() || !files || regions.size() > mapped_regions_max) return {};
  mapped_ =
      std::make_unique<mapped_holder>(loop_, time_, metrics_, regions, own_.key, own_.boot_id);
  auto section = mapped_->open(options_.socket_dir);
  if (!section) return tl::unexpected(std::move(section.error()));
  own_.mapped = std::move(*section);
  return {};
}

result<void> node_port::offer_stream() {
  stream_ = std::make_unique<stream_holder>(
      stream_holder::terms{loop_, time_, metrics_, pool_.regions, own_.key, own_.boot_id});
  if (auto bound = stream_->listen(options_.listen_host, options_.listen_port); !bound) {
    return bound;
  }
  auto& section = own_.stream.emplace();
  section.port = stream_->port();
  return set_hosts(section.hosts);
}

result<void> node_port::set_hosts(std::vector<std::string>& hosts) const {
  hosts = options_.advertise;
  const bool anywhere = options_.listen_host == "0.0.0.0" || options_.listen_host == "::";
  if (hosts.empty() && !anywhere) hosts = {options_.listen_host};
  if (hosts.empty()) {
    for (const auto& device : devices_)
      hosts.push_back(device.addresses.front().host());
  }
  if (hosts.empty()) {
    return fail(errc::not_configured, "no network device has an address that peers could use");
  }
  if (hosts.size() > limits::peer_hosts_max) hosts.resize(limits::peer_hosts_max);
  return {};
}

result<void> node_port::offer_rdma() {
  const bool none = rdma_devices_.empty() && !options_.rdma_over_tcp;
  const bool asked =
      std::find(options_.links.begin(), options_.links.end(), "rdma") != options_.links.end();
  if (none && asked) return fail(errc::not_configured, "links: rdma needs an RDMA device");
  if (none) return {};
  ucx_ = std::make_unique<ucx_worker>(loop_, metrics_, pool_.regions, own_.key, own_.boot_id);
  ucx_settings with;
  with.devices = rdma_devices_;
  with.tcp = options_.rdma_over_tcp;
  if (with.tcp) {
    with.devices.clear();
    for (const auto& device : network_devices())
      with.devices.push_back(device.name);
  }
  with.listen_host = options_.listen_host;
  with.listen_port =
      static_cast<std::uint16_t>(options_.listen_port == 0 ? 0 : options_.listen_port + 1);
  peer_address::ucx_section section;
  if (auto opened = ucx_->open(with, section); !opened) return opened;
  if (auto set = set_hosts(section.hosts); !set) return set;
  own_.ucx = std::move(section);
  return {};
}

result<peer_link_kind> node_port::kind_for(const peer_address& address) const {
  if (allowed_.mapped && address.mapped && is_reachable(*address.mapped)) {
    return peer_link_kind::mapped;
  }
  if (ucx_ != nullptr && address.ucx) return peer_link_kind::rdma;
  if (allowed_.tcp && address.stream) return peer_link_kind::tcp;
  return fail(errc::unavailable,
              fmt::format("no link in common: the peer offers{}{}{}{}, this "
                          "node may use {}",
                          address.mapped ? " shm" : "", address.stream ? " tcp" : "",
                          address.ucx ? " rdma" : "",
                          address.mapped || address.stream || address.ucx ? "" : " none",
                          fmt::join(options_.links, ", ")));
}

result<std::shared_ptr<peer_remote>> node_port::open(std::string_view bytes) {
  auto address = decode_peer_address(bytes);
  if (!address) return tl::unexpected(std::move(address.error()));
  const auto kind = kind_for(*address);
  if (!kind) return tl::unexpected(kind.error());
  std::vector<std::vector<socket_address>> hosts;
  if (*kind != peer_link_kind::mapped) {
    const bool tcp = *kind == peer_link_kind::tcp;
    std::string why;
    for (const auto& host : tcp ? address->stream->hosts : address->ucx->hosts) {
      auto found = resolve(host, tcp ? address->stream->port : address->ucx->port);
      if (found) {
        hosts.push_back(std::move(*found));
      } else {
        why = std::move(found.error().detail);
      }
    }
    if (hosts.empty()) return fail(errc::unavailable, std::move(why));
  }
  remote_context& shared = *this;
  return std::make_shared<node_remote>(shared, std::move(*address), *kind, std::move(hosts));
}

bool node_port::read(const std::shared_ptr<peer_remote>& from, peer_read& read) noexcept {
  assert(read.on_done != nullptr && read.on_released != nullptr);
  assert(read.states.size() == read.pieces.size());
  assert(read.pieces.size() <= limits::peer_pieces_max);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || accepted_ >= options_.reads_max) {
      metrics_.reads_rejected.add();
      return false;
    }
    ++accepted_;
    std::fill(read.states.begin(), read.states.end(), piece_state::missing);
    read.remote = from;
    read.cancel_asked.store(false, std::memory_order_relaxed);
    if (spare_.empty()) {
      made_.push_back(std::make_unique<active_read>());
      spare_.reserve(made_.size());
      spare_.push_back(made_.back().get());
    }
    auto* const active = spare_.back();
    spare_.pop_back();
    active->read = &read;
    inbox_.push_back(active);
  }
  loop_.wake();
  return true;
}

void node_port::cancel(peer_read& read) noexcept {
  read.cancel_asked.store(true, std::memory_order_release);
  cancels_.store(true, std::memory_order_release);
  loop_.wake();
}

void node_port::recycle(active_read& active) noexcept {
  auto& read = *active.read;
  {
    const std::lock_guard lock(mutex_);
    spare_.push_back(&active);
    --accepted_;
  }
  read.remote.reset();
  read.on_released(read);
}

std::unique_ptr<peer_link> node_port::make_link(node_remote& remote, link_events& events,
                                                std::string& why) noexcept {
  try {
    const auto& address = remote.address();
    if (remote.kind() == peer_link_kind::mapped) {
      if (copies_ == nullptr) {
        copies_ = std::make_unique<host_device>(
            host_device_options{options_.copy_threads, limits::copy_jobs_max, -1}, time_,
            copy_counts_);
      }
      return std::make_unique<mapped_link>(loop_, events, *copies_, address);
    }
    if (remote.kind() == peer_link_kind::rdma) {
      std::vector<socket_address> hosts;
      for (const auto& alternatives : remote.hosts())
        hosts.insert(hosts.end(), alternatives.begin(), alternatives.end());
      return std::make_unique<ucx_link>(*ucx_, loop_, events, address, std::move(hosts));
    }
    stream_link::target to{remote.hosts(), {address.key, address.boot_id}};
    return std::make_unique<stream_link>(loop_, events, time_, std::move(to), local_);
  } catch (const std::exception& failed) {
    why = failed.what();
    return nullptr;
  }
}

// True while the port goes on.
bool node_port::take_inbox() noexcept {
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(inbox_);
    stopping = stopping_;
  }
  for (auto* const active : taken_) {
    auto remote = std::static_pointer_cast<node_remote>(active->read->remote);
    active->begin(*active->read, *remote, time_.now());
    remote->start(*active);
    if (std::find(remotes_.begin(), remotes_.end(), remote) == remotes_.end()) {
      remotes_.push_back(std::move(remote));
    }
  }
  taken_.clear();
  return !stopping;
}

time_point node_port::turn_all(time_point now) noexcept {
  auto next = now + idle_turn;
  const bool cancels = cancels_.exchange(false, std::memory_order_acq_rel);
  for (std::size_t i = 0; i < remotes_.size();) {
    auto& remote = remotes_[i];
    if (stop_seen_) remote->stop();
    next = std::min(next, remote->turn(now, cancels));
    if (remote.use_count() == 1 && remote->idle() && remote->linked()) {
      remote->unlink();
      next = now;
    }
    if (remote->idle() && !remote->linked()) {
      remote = std::move(remotes_.back());
      remotes_.pop_back();
    } else {
      ++i;
    }
  }
  if (stream_) next = std::min(next, stream_->tick(now));
  if (mapped_) next = std::min(next, mapped_->tick(now));
  if (ucx_) next = std::min(next, ucx_->tick(now));
  return next;
}

void node_port::run() noexcept {
  for (;;) {
    stop_seen_ = !take_inbox();
    const auto next = turn_all(time_.now());
    if (stop_seen_ && remotes_.empty()) {
      const std::lock_guard lock(mutex_);
      if (inbox_.empty()) break;
      continue;
    }
    loop_.wait(stop_seen_ ? duration(std::chrono::milliseconds(10)) : next - time_.now());
  }
  copies_.reset();
  mapped_.reset();
  stream_.reset();
  ucx_.reset();
}

}  // namespace kvd
