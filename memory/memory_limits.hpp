#pragma once
// How much memory this process may take and pin, and what to do when that is too little.
//
// Facts are read from /proc, /sys and getrlimit once, before anything is allocated; the check is
// pure, so tests hand it facts or trees of files of their own. Sizes are bytes.

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.hpp"

namespace kvd {

struct memory_roots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
  std::string hugepages = "/sys/kernel/mm/hugepages";
};

inline constexpr std::uint64_t huge_page_bytes = 2 << 20;

// nullopt: unlimited.
using memlock_limit = std::optional<std::uint64_t>;
// The hard RLIMIT_MEMLOCK: a process may raise its soft limit so far, and raise_memlock does.
memlock_limit read_memlock_limit();
// Lifts the soft limit to the hard one.
result<void> raise_memlock();

// The cgroup, of this process's and those around it, with the least room.
struct cgroup_room {
  int version = 2;
  std::string path;
  std::uint64_t limit = 0;
  std::uint64_t used = 0;  // without page cache, which makes way
  std::uint64_t left() const noexcept { return limit > used ? limit - used : 0; }
};

struct memory_facts {
  memlock_limit memlock;                   // nullopt also for root and CAP_IPC_LOCK
  std::uint64_t locked = 0;                // locked already, counts towards memlock
  std::optional<cgroup_room> cgroup;       // nullopt: no limit
  std::optional<std::uint64_t> available;  // MemAvailable; nullopt: unknown
  std::uint64_t huge_pages_total = 0;      // of huge_page_bytes, reserved by the operator
  std::uint64_t huge_pages_free = 0;       // of those, neither in use nor promised
};

// What cannot be read counts as no limit (or as no huge pages).
memory_facts read_memory_facts(const memory_roots& roots, memlock_limit memlock);

// limit_exceeded lists every bound that `bytes` of pinned memory break, each with its remedy.
result<void> check_claim(const memory_facts& facts, std::uint64_t bytes, bool use_hugepages);

// "32212254720 bytes (30.0 GiB)"
std::string in_words(std::uint64_t bytes);

}  // namespace kvd
