#pragma once
// The sessions of the directory's nodes: who lives, who was silent, who is being forgotten.
//
// A slot is one session: it is free, live, or leaving. The live session of an address is the one
// that counts; a leaving one is hidden at once, and its slot is free again when its last record is
// gone and no request works with it. So a node that comes back as another run never waits for the
// records of the run before, and neither do its heartbeats.
//
// Threads: any. Lookups by address take one lock, a short one; visible() takes none.

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "memory/directory.hpp"
#include "memory/directory_table.hpp"

namespace kvd {

// A UUID as text, in any of the usual spellings: with hyphens, without, in braces, as a URN.
using uuid = std::array<std::uint64_t, 2>;
[[nodiscard]] result<uuid> parse_uuid(std::string_view text);
std::string format_uuid(const uuid& id);

class directory_sessions {
public:
  // A session that a request works with: it keeps its slot until this ends.
  class use {
  public:
    use(directory_sessions& of, session_index at) noexcept : of_(&of), at_(at) {}
    use(use&& other) noexcept : of_(std::exchange(other.of_, nullptr)), at_(other.at_) {}
    use& operator=(use&&) = delete;
    ~use() {
      if (of_ != nullptr) of_->slots_[at_].users.fetch_sub(1, std::memory_order_release);
    }
    session_index index() const noexcept { return at_; }

  private:
    directory_sessions* of_;
    session_index at_;
  };

  directory_sessions(const clock& time, duration stale_after);

  // The session of this address and id lives. Takes a stale session's place.
  result<void> heartbeat(std::string_view node, const uuid& id);
  // A sign of life, and the session. instance_missing: "unknown node" or "stale node session".
  result<use> find(std::string_view node, const uuid& id);
  // Hides it for good. REQUIRES: the slot of a use.
  void leave(session_index at);
  // Hides all that were silent for longer than `silence`.
  struct left {
    session_index at;
    std::string node;
    std::uint64_t owners;
  };
  std::vector<left> leave_silent(duration silence);

  // The live session of an address, if there is one.
  std::optional<session_index> live(std::string_view node) const;
  // Any slot that is in use, below this.
  session_index high_water() const noexcept { return high_water_.load(std::memory_order_acquire); }
  bool is_leaving(session_index at) const noexcept { return state(at) == phase::leaving; }
  bool is_live(session_index at) const noexcept { return state(at) == phase::live; }
  bool visible(session_index at, time_point now) const noexcept {
    return is_live(at) && now - seen(at) <= stale_after_;
  }
  time_point seen(session_index at) const noexcept {
    return time_point(duration(slots_[at].seen.load(std::memory_order_relaxed)));
  }
  // Rises whenever the slot gets another session.
  std::uint32_t generation(session_index at) const noexcept {
    return slots_[at].generation.load(std::memory_order_acquire);
  }
  // Nothing when the slot has another session by now.
  std::optional<std::string> name(session_index at, std::uint32_t generation) const;

  void count_owners(session_index at, std::int64_t more) noexcept {
    slots_[at].owners.fetch_add(static_cast<std::uint64_t>(more), std::memory_order_relaxed);
  }
  std::uint64_t owners(session_index at) const noexcept {
    return slots_[at].owners.load(std::memory_order_relaxed);
  }
  std::uint32_t round(session_index at) const noexcept {
    return slots_[at].round.load(std::memory_order_relaxed);
  }
  std::uint32_t next_round(session_index at) noexcept {
    return slots_[at].round.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  // A leaving session without records that nobody works with: from now on nobody can. The slot is
  // given out again after free().
  bool idle(session_index at) const noexcept;
  void free(session_index at);

  std::vector<directory_node> list() const;
  // Fresh, stale, leaving.
  std::array<std::uint64_t, 3> count() const;

private:
  enum class phase : std::uint8_t { free, live, leaving };
  struct slot {
    std::atomic<phase> state{phase::free};
    std::atomic<duration::rep> seen{0};
    std::atomic<std::uint32_t> generation{0};
    std::atomic<std::uint32_t> users{0};
    std::atomic<std::uint32_t> round{0};
    std::atomic<std::uint64_t> owners{0};
    std::string node;  // GUARDED_BY(mutex_)
    uuid id{};         // GUARDED_BY(mutex_)
  };
  phase state(session_index at) const noexcept {
    return slots_[at].state.load(std::memory_order_acquire);
  }
  void touch(session_index at) noexcept;
  void leave_locked(session_index at);
  node_state state_of(session_index at, time_point now) const noexcept;
  std::optional<session_index> free_slot() const noexcept;

  const clock& clock_;
  const duration stale_after_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, session_index> live_;  // GUARDED_BY(mutex_): by address
  std::vector<slot> slots_;
  std::atomic<session_index> high_water_{0};
};

}  // namespace kvd
