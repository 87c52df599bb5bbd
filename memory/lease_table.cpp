#include "memory/lease_table.hpp"

#include <cstring>

#include <fmt/format.h>

#include "core/limits.hpp"

namespace kvd {

namespace {

// id: 4 bytes place, 4 bytes generation, 8 bytes random.
std::uint32_t place_of(std::string_view id) noexcept {
  std::uint32_t place = 0;
  std::memcpy(&place, id.data(), sizeof place);
  return place;
}

error missing() {
  return {errc::lease_missing, "query lease is unknown or expired"};
}

}  // namespace

lease_table::lease_table(block_store& store, const clock& time, random_source& random,
                         store_metrics& metrics, duration ttl)
    : store_(store), clock_(time), random_(random), metrics_(metrics), ttl_(ttl) {}

lease_table::~lease_table() {
  drop_all();
}

lease_table::lease* lease_table::find(std::string_view id) {
  if (id.size() != sizeof(lease_id)) return nullptr;
  const auto place = place_of(id);
  if (place >= leases_.size()) return nullptr;
  auto& found = *leases_[place];
  if (found.consumers == 0 || std::memcmp(found.id.data(), id.data(), id.size()) != 0) {
    return nullptr;
  }
  if (found.expires <= clock_.now()) {
    metrics_.lease_expirations.add();
    end(found);
    return nullptr;
  }
  return &found;
}

lease_table::lease* lease_table::take_free() {
  if (free_.empty()) {
    if (leases_.size() == limits::leases_max) return nullptr;
    leases_.push_back(std::make_unique<lease>());
    return leases_.back().get();
  }
  const auto place = free_.back();
  free_.pop_back();
  return leases_[place].get();
}

void lease_table::end(lease& over) {
  store_.unpin(over.blocks);
  metrics_.leases.add(-1);
  metrics_.leased_blocks.add(-static_cast<std::int64_t>(over.blocks.size()));
  over.blocks.clear();
  over.consumers = 0;
  free_.push_back(place_of({over.id.data(), over.id.size()}));
}

result<lease_id> lease_table::grant(std::uint64_t instance, scope_id in, std::uint32_t consumers,
                                    std::span<const block_index> blocks) {
  const std::lock_guard lock(mutex_);
  auto* fresh = take_free();
  if (fresh == nullptr) {
    return fail(errc::limit_exceeded, fmt::format("{} query leases are live, limit {}",
                                                  leases_.size(), limits::leases_max));
  }
  const auto known = place_of({fresh->id.data(), fresh->id.size()});
  const bool reused = fresh->generation > 0;
  const auto place = reused ? known : static_cast<std::uint32_t>(leases_.size() - 1);
  ++fresh->generation;
  std::memcpy(fresh->id.data(), &place, sizeof place);
  std::memcpy(fresh->id.data() + 4, &fresh->generation, sizeof fresh->generation);
  random_.fill(std::as_writable_bytes(std::span(fresh->id)).subspan(8));
  fresh->instance = instance;
  fresh->in = in;
  fresh->consumers = consumers;
  fresh->expires = clock_.now() + ttl_;
  fresh->blocks.assign(blocks.begin(), blocks.end());
  metrics_.leases.add(1);
  metrics_.leased_blocks.add(static_cast<std::int64_t>(blocks.size()));
  return fresh->id;
}

result<scope_id> lease_table::redeem(std::string_view id, std::uint64_t instance,
                                     std::vector<block_index>& out) {
  const std::lock_guard lock(mutex_);
  auto* found = find(id);
  if (found == nullptr) return tl::unexpected(missing());
  if (found->instance != instance) {
    return fail(errc::invalid_argument, "query lease belongs to another instance");
  }
  store_.add_pins(found->blocks);
  out.insert(out.end(), found->blocks.begin(), found->blocks.end());
  const auto in = found->in;
  if (found->consumers == 1) {
    end(*found);
  } else {
    --found->consumers;
  }
  return in;
}

result<void> lease_table::release(std::string_view id) {
  const std::lock_guard lock(mutex_);
  auto* found = find(id);
  if (found == nullptr) return tl::unexpected(missing());
  end(*found);
  return {};
}

void lease_table::drop_instance(std::uint64_t instance) {
  const std::lock_guard lock(mutex_);
  for (auto& each : leases_) {
    if (each->consumers > 0 && each->instance == instance) end(*each);
  }
}

std::size_t lease_table::expire() {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (auto& each : leases_) {
    if (each->consumers == 0 || each->expires > clock_.now()) continue;
    end(*each);
    ++count;
  }
  metrics_.lease_expirations.add(count);
  return count;
}

void lease_table::drop_all() {
  const std::lock_guard lock(mutex_);
  for (auto& each : leases_) {
    if (each->consumers > 0) end(*each);
  }
}

}  // namespace kvd
