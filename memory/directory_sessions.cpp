#include "memory/directory_sessions.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace kvd {

namespace {

constexpr std::size_t uuid_digits = 32;
constexpr std::size_t uuid_hyphens[] = {8, 13, 18, 23};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

tl::unexpected<error> no_uuid(std::string_view text) {
  return fail(errc::invalid_argument,
              fmt::format("invalid node_id: a UUID has 32 hexadecimal digits, as in "
                          "67e55044-10b1-426f-9247-bb680e5fe0c8; got {} bytes",
                          text.size()));
}

}  // namespace

result<uuid> parse_uuid(std::string_view text) {
  auto bare = text;
  if (bare.starts_with("urn:uuid:")) bare.remove_prefix(9);
  if (bare.size() > 2 && bare.front() == '{' && bare.back() == '}') {
    bare = bare.substr(1, bare.size() - 2);
  }
  const bool hyphens = bare.size() == uuid_digits + std::size(uuid_hyphens);
  if (!hyphens && bare.size() != uuid_digits) return no_uuid(text);
  uuid out{};
  std::size_t digits = 0;
  for (std::size_t i = 0; i < bare.size(); ++i) {
    if (hyphens && std::ranges::find(uuid_hyphens, i) != std::end(uuid_hyphens)) {
      if (bare[i] != '-') return no_uuid(text);
      continue;
    }
    const int digit = hex_digit(bare[i]);
    if (digit < 0) return no_uuid(text);
    auto& half = out[digits++ / (uuid_digits / 2)];
    half = half << 4 | static_cast<std::uint64_t>(digit);
  }
  return out;
}

std::string format_uuid(const uuid& id) {
  const auto text = fmt::format("{:016x}{:016x}", id[0], id[1]);
  return fmt::format("{}-{}-{}-{}-{}", text.substr(0, 8), text.substr(8, 4), text.substr(12, 4),
                     text.substr(16, 4), text.substr(20));
}

directory_sessions::directory_sessions(const clock& time, duration stale_after)
    : clock_(time), stale_after_(stale_after), slots_(limits::directory_nodes_max) {}

void directory_sessions::touch(session_index at) noexcept {
  slots_[at].seen.store(clock_.now().time_since_epoch().count(), std::memory_order_relaxed);
}

std::optional<session_index> directory_sessions::free_slot() const noexcept {
  for (session_index at = 0; at < slots_.size(); ++at) {
    if (state(at) == phase::free) return at;
  }
  return std::nullopt;
}

result<void> directory_sessions::heartbeat(std::string_view node, const uuid& id) {
  if (node.empty() || node.size() > limits::id_bytes_max) {
    return fail(errc::invalid_argument, fmt::format("node has {} bytes; 1 to {} are allowed",
                                                    node.size(), limits::id_bytes_max));
  }
  const std::lock_guard lock(mutex_);
  const auto known = live_.find(std::string(node));
  if (known != live_.end()) {
    const auto at = known->second;
    if (slots_[at].id == id) {
      touch(at);
      return {};
    }
    if (visible(at, clock_.now())) return fail(errc::instance_missing, "stale node session");
  }
  const auto at = free_slot();
  if (!at) {
    return fail(
        errc::limit_exceeded,
        fmt::format("{} nodes are known or being forgotten, which is the limit", slots_.size()));
  }
  if (known != live_.end()) leave_locked(known->second);
  auto& fresh = slots_[*at];
  fresh.node = node;
  fresh.id = id;
  fresh.generation.fetch_add(1, std::memory_order_release);
  touch(*at);
  fresh.state.store(phase::live, std::memory_order_release);
  live_[fresh.node] = *at;
  if (*at >= high_water()) high_water_.store(*at + 1, std::memory_order_release);
  return {};
}

result<directory_sessions::use> directory_sessions::find(std::string_view node, const uuid& id) {
  const std::lock_guard lock(mutex_);
  const auto known = live_.find(std::string(node));
  if (known == live_.end()) return fail(errc::instance_missing, "unknown node");
  const auto at = known->second;
  if (slots_[at].id != id) return fail(errc::instance_missing, "stale node session");
  touch(at);
  slots_[at].users.fetch_add(1, std::memory_order_relaxed);
  return use(*this, at);
}

void directory_sessions::leave_locked(session_index at) {
  live_.erase(slots_[at].node);
  slots_[at].state.store(phase::leaving, std::memory_order_release);
}

void directory_sessions::leave(session_index at) {
  const std::lock_guard lock(mutex_);
  if (is_live(at)) leave_locked(at);
}

std::vector<directory_sessions::left> directory_sessions::leave_silent(duration silence) {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.now();
  std::vector<left> out;
  for (session_index at = 0; at < high_water(); ++at) {
    if (!is_live(at) || now - seen(at) <= silence) continue;
    out.push_back({at, slots_[at].node, owners(at)});
    leave_locked(at);
  }
  return out;
}

std::optional<session_index> directory_sessions::live(std::string_view node) const {
  const std::lock_guard lock(mutex_);
  const auto known = live_.find(std::string(node));
  if (known == live_.end()) return std::nullopt;
  return known->second;
}

std::optional<std::string> directory_sessions::name(session_index at,
                                                    std::uint32_t generation) const {
  const std::lock_guard lock(mutex_);
  if (this->generation(at) != generation) return std::nullopt;
  return slots_[at].node;
}

bool directory_sessions::idle(session_index at) const noexcept {
  // In this order: whoever still worked with it has counted its records when users is 0.
  return is_leaving(at) && slots_[at].users.load(std::memory_order_acquire) == 0 && owners(at) == 0;
}

void directory_sessions::free(session_index at) {
  const std::lock_guard lock(mutex_);
  auto& gone = slots_[at];
  gone.node.clear();
  gone.round.store(0, std::memory_order_relaxed);
  gone.generation.fetch_add(1, std::memory_order_release);
  gone.state.store(phase::free, std::memory_order_release);
}

node_state directory_sessions::state_of(session_index at, time_point now) const noexcept {
  if (is_leaving(at)) return node_state::leaving;
  return visible(at, now) ? node_state::fresh : node_state::stale;
}

std::vector<directory_node> directory_sessions::list() const {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.now();
  std::vector<directory_node> out;
  for (session_index at = 0; at < high_water(); ++at) {
    if (state(at) == phase::free) continue;
    out.push_back({.node = slots_[at].node,
                   .node_id = format_uuid(slots_[at].id),
                   .state = state_of(at, now),
                   .owners = owners(at),
                   .seen_seconds_ago = std::chrono::duration<double>(now - seen(at)).count()});
  }
  return out;
}

std::array<std::uint64_t, 3> directory_sessions::count() const {
  const auto now = clock_.now();
  std::array<std::uint64_t, 3> out{};
  for (session_index at = 0; at < high_water(); ++at) {
    if (state(at) == phase::free) continue;
    ++out[static_cast<std::size_t>(state_of(at, now))];
  }
  return out;
}

}  // namespace kvd
