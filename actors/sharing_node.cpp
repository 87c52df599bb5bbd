#include "actors/sharing_node.hpp"

#include <utility>

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <fmt/format.h>

#include "actors/sharing.hpp"
#include "core/address.hpp"
#include "core/log.hpp"
#include "transport/grpc/metaserver_client.hpp"
#include "transport/grpc/peer_client.hpp"
#include "transport/peer/open_peer_port.hpp"

namespace kvd {

namespace {

// Announcements that wait: blocks for each of PegaFlow's commands, which are batches.
constexpr std::size_t blocks_per_command = 16;
// Events that the registrar has not taken yet; at 100,000 saved blocks a second, two seconds'
// worth.
constexpr std::size_t feed_events = 1 << 18;
// Of the hexadecimal boot id: what a port names itself by.
constexpr std::size_t port_id_bytes = 16;

std::string uuid_from(random_source& random) {
  const auto a = random.next();
  const auto b = random.next();
  // Version 4, variant 1.
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}", a >> 32, (a >> 16) & 0xffff, a & 0xfff,
                     0x8000 | ((b >> 48) & 0x3fff), b & 0xffffffffffff);
}

}  // namespace

template<class Actor>
void sharing_node::outlet<Actor>::post(std::function<void()> task) const {
  if (auto actor = handle()) caf::anon_send(actor, message::run{std::move(task)});
}

template<class Actor>
Actor sharing_node::outlet<Actor>::handle() const {
  const std::lock_guard lock(mutex);
  return to;
}

result<std::unique_ptr<sharing_node>> sharing_node::create(world in) {
  std::unique_ptr<sharing_node> node(new sharing_node(std::move(in)));
  if (auto built = node->build(); !built) return tl::unexpected(built.error());
  return node;
}

result<void> sharing_node::build() {
  const auto& options = world_.options;
  node_ = options.advertise_addr.empty() ? options.addr : options.advertise_addr;
  const auto regions = world_.memory.regions();
  for (std::size_t i = 0; i < regions.size(); ++i) {
    pool_.regions.push_back({.base = regions[i].base,
                             .bytes = regions[i].bytes,
                             .pool_offset = world_.pool.region_offset(i),
                             .memfd = world_.pages.file_of(regions[i].base),
                             .file_offset = 0});
  }
  auto listen = parse_address(options.peer_addr.empty() ? options.addr : options.peer_addr);
  if (!listen) return tl::unexpected(listen.error());
  const auto self = parse_address(node_);
  if (!self) return tl::unexpected(self.error());
  const auto port_id = world_.boot_id.substr(0, port_id_bytes);
  auto port =
      open_peer_port({.links = options.peer_links,
                      .nics = options.nics,
                      .listen_host = listen->host,
                      .listen_port = options.peer_addr.empty() ? std::uint16_t{0} : listen->port,
                      .advertise = {self->host},
                      .socket_dir = {},
                      .boot_id = port_id},
                     pool_, world_.time, world_.random, world_.metrics.peers);
  if (!port) return tl::unexpected(port.error());
  port_ = std::move(*port);

  auto& sharing = world_.metrics.sharing;
  locks_ = std::make_unique<transfer_locks>(world_.store, world_.time, world_.random, sharing,
                                            options.transfer_lock_timeout);
  desk_ = std::make_unique<transfer_desk>(world_.store, *locks_, port_id, port_->address());
  feed_ = std::make_unique<residency_feed>(
      feed_events, [this] { registrar_.post([this] { announcer_->drain(); }); });
  world_.store.tell(*feed_);
  const metaserver_identity identity{node_, uuid_from(world_.random)};
  std::vector<std::unique_ptr<directory_link>> links;
  for (const auto& each : options.metaserver_addrs)
    links.push_back(connect_metaserver(each, identity));
  announcer_ = std::make_unique<announcer>(
      announcer_options{.queue_blocks_max = options.metaserver_queue_depth * blocks_per_command},
      std::move(links), world_.store, *feed_, world_.time, sharing,
      [this](announcer::task task) { registrar_.post(std::move(task)); });
  announcer_->on_reclaimable([this](scope_id in, const std::vector<std::string>& hashes) {
    std::vector<const std::string*> names;
    for (const auto& hash : hashes)
      names.push_back(&hash);
    world_.store.hint_reclaimable(in, names);
  });
  tier_ = std::make_unique<peer_tier>(
      peer_tier_options{},
      peer_tier::parts{
          .store = world_.store,
          .directories = *announcer_,
          .port = *port_,
          .connect = [port_id](const std::string& to) { return connect_peer(to, port_id); },
          .ssd = world_.ssd,
          .time = world_.time,
          .metrics = sharing,
          .post = [this](peer_tier::task task) { peers_.post(std::move(task)); }});
  return {};
}

void sharing_node::spawn(caf::actor_system& system) {
  system_ = &system;
  auto* const metrics = &world_.metrics.control;
  const clock* const time = &world_.time;
  {
    const std::lock_guard lock(peers_.mutex);
    peers_.to = system.spawn(keep_peers, tier_.get(), locks_.get(), metrics, time);
  }
  const std::lock_guard lock(registrar_.mutex);
  registrar_.to = system.spawn(keep_announced, announcer_.get(), metrics, time);
}

void sharing_node::begin() {
  log::info("node", "sharing blocks as {} with {} metaserver{}", node_,
            world_.options.metaserver_addrs.size(),
            world_.options.metaserver_addrs.size() == 1 ? "" : "s");
  if (auto to = registrar_.handle()) caf::anon_send(to, message::tick{});
}

void sharing_node::leave() {
  registrar_.post([this] { announcer_->say_goodbye([this] { left_.store(true); }); });
}

bool sharing_node::gone() const noexcept {
  return left_.load() && world_.metrics.sharing.locked_blocks.value() == 0;
}

template<class Actor>
void sharing_node::outlet<Actor>::end(caf::actor_system& system) {
  Actor ended;
  {
    const std::lock_guard lock(mutex);
    ended = std::exchange(to, nullptr);
  }
  if (!ended) return;
  caf::anon_send(ended, message::stop{});
  caf::scoped_actor self(system);
  self->wait_for(ended);
}

sharing_node::~sharing_node() {
  // First nobody starts anything, then what was asked is answered (to nobody), then the reads end.
  if (system_ != nullptr) {
    peers_.end(*system_);
    registrar_.end(*system_);
  }
  if (announcer_) announcer_->stop_asking();
  if (tier_) tier_->stop_asking();
  port_.reset();
  tier_.reset();
}

}  // namespace kvd
