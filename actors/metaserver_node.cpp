#include "actors/metaserver_node.hpp"

#include <algorithm>

#include <caf/send.hpp>
#include <fmt/format.h>

#include "actors/metaserver.hpp"
#include "core/limits.hpp"
#include "core/log.hpp"
#include "memory/directory_store.hpp"
#include "memory/memory_limits.hpp"
#include "transport/http/listen_address.hpp"

namespace kvd {

namespace {

// Of the memory that is there at start, for the directory: a server may share the process.
constexpr std::uint64_t memory_share = 4;
// A record, its part of the chains, and some that shards have in reserve.
constexpr std::uint64_t bytes_of_entry = 48;
constexpr std::uint64_t entries_at_least = 1 << 20;
// For calls that run: a big insert takes some tens of milliseconds.
constexpr unsigned metaserver_grace_ms = 1000;

std::string with_port(const std::string& bound, std::uint16_t port) {
  return fmt::format("{}:{}", bound.substr(0, bound.rfind(':')), port);
}

}  // namespace

std::uint64_t entries_by_memory() {
  const auto facts = read_memory_facts(memory_roots{}, read_memlock_limit());
  auto left = facts.available.value_or(std::uint64_t{4} << 30);
  if (facts.cgroup) left = std::min(left, facts.cgroup->left());
  return std::clamp(left / memory_share / bytes_of_entry, entries_at_least,
                    limits::directory_owners_max);
}

result<std::unique_ptr<metaserver_node>>
metaserver_node::create(const metaserver_options& options) {
  for (const auto& address : {options.http_addr, options.addr}) {
    if (auto available = http::check_available(address); !available) {
      return tl::unexpected(available.error());
    }
  }
  std::unique_ptr<metaserver_node> node(new metaserver_node(options));
  if (auto listening = node->listen(); !listening) return tl::unexpected(listening.error());
  log::info("metaserver", "listening grpc={} http={} directory_id={} max_entries={}",
            with_port(options.addr, node->grpc_port()),
            with_port(options.http_addr, node->http_port()), node->store_->id(),
            node->store_->usage().owners_max);
  return node;
}

metaserver_node::metaserver_node(const metaserver_options& options)
    : options_(options),
      store_(std::make_unique<directory_store>(
          directory_store::options{
              .owners_max = options.max_entries > 0 ? options.max_entries : entries_by_memory(),
              .stale_after = options.node_stale,
              .ttl = options.ttl,
              .seed = random_.next(),
              .id = fmt::format("{:016x}{:016x}", random_.next(), random_.next())},
          clock_)),
      actors_(std::make_unique<caf::actor_system>(actor_config_)) {
  const metaserver_parts parts{.store = store_.get(),
                               .metrics = &metrics_,
                               .time = &clock_,
                               .sweep_interval = options_.sweep_interval};
  // One that waits for a network keeps a thread to itself.
  keeper_ = store_->blocking() ? actors_->spawn<caf::detached>(keep_directory, parts)
                               : actors_->spawn(keep_directory, parts);
}

result<void> metaserver_node::listen() {
  auto admin =
      http::server::start({.address = options_.http_addr, .admin_token = options_.admin_token},
                          metaserver_routes({.options = options_,
                                             .time = clock_,
                                             .metrics = metrics_,
                                             .store = *store_,
                                             .stopping = stopping_,
                                             .started = clock_.now(),
                                             .keeper = keeper_}));
  if (!admin) return tl::unexpected(admin.error());
  http_ = std::move(*admin);
  auto served = metaserver_server::start(
      options_.addr,
      {.store = *store_, .metrics = metrics_, .time = clock_, .stale_after = options_.node_stale});
  if (!served) return tl::unexpected(served.error());
  grpc_ = std::move(*served);
  return {};
}

metaserver_node::~metaserver_node() {
  stopping_ = true;
  if (grpc_) grpc_->stop(metaserver_grace_ms);
  if (http_) http_->stop(metaserver_grace_ms);
  caf::anon_send(keeper_, message::stop{});
  keeper_ = nullptr;
  // Its routes hold a handle of the actor.
  http_.reset();
  // Waits for the actor, which works on the directory.
  actors_.reset();
}

}  // namespace kvd
