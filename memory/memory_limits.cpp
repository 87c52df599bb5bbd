#include "memory/memory_limits.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

namespace kvd {

namespace {

// v1 says "unlimited" with the largest page-aligned number.
constexpr std::uint64_t practically_unlimited = std::uint64_t{1} << 62;
constexpr unsigned cap_ipc_lock = 14;
// Sizes are suggested in steps that a person would type.
constexpr std::uint64_t suggestion_step = 1 << 20;

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<std::uint64_t> parse_number(std::string_view text, int base = 10) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  text.remove_prefix(first);
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (failed != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  return parse_number(read_file(path));
}

// The number after `key` at the start of a line, as in meminfo, status and memory.stat.
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key,
                                          int base = 10) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) return parse_number(line.substr(key.size()), base);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

struct cgroup_files {
  int version;
  std::vector<std::string> limits;  // the lowest counts
  std::string used;
  std::array<std::string_view, 2> cache_keys;
};

cgroup_files files_of(int version) {
  if (version == 2) {
    // Beyond memory.high the kernel reclaims; what is pinned cannot be, so the process would crawl.
    return {2, {"memory.max", "memory.high"}, "memory.current", {"inactive_file ", "active_file "}};
  }
  return {1,
          {"memory.limit_in_bytes"},
          "memory.usage_in_bytes",
          {"total_inactive_file ", "total_active_file "}};
}

std::optional<cgroup_room> room_of(const std::string& folder, const cgroup_files& files) {
  auto limit = practically_unlimited;
  for (const auto& file : files.limits) {
    limit = std::min(limit, read_number(folder + "/" + file).value_or(practically_unlimited));
  }
  if (limit == practically_unlimited) return std::nullopt;
  const auto stat = read_file(folder + "/memory.stat");
  std::uint64_t cache = 0;
  for (const auto key : files.cache_keys)
    cache += number_after(stat, key).value_or(0);
  const auto used = read_number(folder + "/" + files.used).value_or(0);
  return cgroup_room{files.version, folder, limit, used > cache ? used - cache : 0};
}

void keep_tighter(std::optional<cgroup_room>& best, std::optional<cgroup_room> other) {
  if (other && (!best || other->left() < best->left())) best = std::move(other);
}

// Looks from the process's own group up to the mount: inside a container the path may name a group
// that only the host sees, and then the mount itself is the container's group.
void look_upwards(const std::string& mount, std::string path, const cgroup_files& files,
                  std::optional<cgroup_room>& best) {
  if (path.find("..") != std::string::npos) path.clear();
  while (!path.empty() && path.back() == '/')
    path.pop_back();
  for (;;) {
    keep_tighter(best, room_of(mount + path, files));
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

bool names_memory(std::string_view controllers) {
  const auto padded = fmt::format(",{},", controllers);
  return padded.find(",memory,") != std::string::npos;
}

std::optional<cgroup_room> read_cgroup(const memory_roots& roots) {
  std::optional<cgroup_room> best;
  std::ifstream in(roots.proc + "/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const auto path = line.substr(second + 1);
    if (controllers.empty()) {
      look_upwards(roots.cgroup, path, files_of(2), best);
      look_upwards(roots.cgroup + "/unified", path, files_of(2), best);
    } else if (names_memory(controllers)) {
      look_upwards(roots.cgroup + "/memory", path, files_of(1), best);
    }
  }
  return best;
}

std::string memlock_problem(std::uint64_t bytes, const memory_facts& facts) {
  const auto kib = (bytes + facts.locked + 1023) / 1024;
  return fmt::format("locking {} needs a higher RLIMIT_MEMLOCK, which allows {} with {} locked "
                     "already: run `ulimit -l {}` (or `ulimit -l unlimited`) before kvd, set "
                     "LimitMEMLOCK=infinity in its systemd unit, or give the container "
                     "`--ulimit memlock=-1:-1`",
                     in_words(bytes), in_words(*facts.memlock), in_words(facts.locked), kib);
}

std::string cgroup_problem(std::uint64_t bytes, const cgroup_room& group) {
  return fmt::format("{} do not fit into cgroup v{} {}: its limit is {}, {} are used beside page "
                     "cache; raise {} to at least {} (docker: --memory, Kubernetes: "
                     "resources.limits.memory) or start with --pool-size {}mb or less",
                     in_words(bytes), group.version, group.path, in_words(group.limit),
                     in_words(group.used),
                     group.version == 2 ? "memory.max and memory.high" : "memory.limit_in_bytes",
                     group.used + bytes, group.left() / suggestion_step);
}

std::string available_problem(std::uint64_t bytes, std::uint64_t available) {
  return fmt::format("{} are more than the {} that this machine has available (MemAvailable in "
                     "/proc/meminfo): stop other programs or start with --pool-size {}mb or less",
                     in_words(bytes), in_words(available), available / suggestion_step);
}

std::string huge_page_problem(std::uint64_t needed, const memory_facts& facts) {
  return fmt::format("--use-hugepages needs {} free huge pages of 2 MiB; {} are reserved and {} of "
                     "them free: run `sysctl vm.nr_hugepages={}`, or leave out --use-hugepages",
                     needed, facts.huge_pages_total, facts.huge_pages_free,
                     facts.huge_pages_total + needed - facts.huge_pages_free);
}

}  // namespace

memlock_limit read_memlock_limit() {
  rlimit now{};
  if (::getrlimit(RLIMIT_MEMLOCK, &now) != 0 || now.rlim_max == RLIM_INFINITY) return std::nullopt;
  return now.rlim_max;
}

result<void> raise_memlock() {
  rlimit now{};
  if (::getrlimit(RLIMIT_MEMLOCK, &now) == 0) {
    if (now.rlim_cur == now.rlim_max) return {};
    now.rlim_cur = now.rlim_max;
    if (::setrlimit(RLIMIT_MEMLOCK, &now) == 0) return {};
  }
  return fail(errc::io, fmt::format("cannot raise RLIMIT_MEMLOCK to its hard limit: {}",
                                    std::generic_category().message(errno)));
}

memory_facts read_memory_facts(const memory_roots& roots, memlock_limit memlock) {
  memory_facts facts;
  const auto status = read_file(roots.proc + "/self/status");
  const auto capabilities = number_after(status, "CapEff:", 16).value_or(0);
  const bool exempt = (capabilities >> cap_ipc_lock & 1) != 0;
  if (!exempt) facts.memlock = memlock;
  facts.locked = number_after(status, "VmLck:").value_or(0) * 1024;
  facts.cgroup = read_cgroup(roots);
  const auto meminfo = read_file(roots.proc + "/meminfo");
  if (const auto kib = number_after(meminfo, "MemAvailable:")) facts.available = *kib * 1024;
  const auto folder = roots.hugepages + "/hugepages-2048kB/";
  const auto promised = read_number(folder + "resv_hugepages").value_or(0);
  const auto free = read_number(folder + "free_hugepages").value_or(0);
  facts.huge_pages_total = read_number(folder + "nr_hugepages").value_or(0);
  facts.huge_pages_free = free > promised ? free - promised : 0;
  return facts;
}

result<void> check_claim(const memory_facts& facts, std::uint64_t bytes, bool use_hugepages) {
  std::vector<std::string> problems;
  if (use_hugepages) {
    // They were set aside before: neither free memory nor RLIMIT_MEMLOCK is touched.
    const auto needed = (bytes + huge_page_bytes - 1) / huge_page_bytes;
    if (needed > facts.huge_pages_free) problems.push_back(huge_page_problem(needed, facts));
  } else {
    if (facts.memlock && bytes + facts.locked > *facts.memlock) {
      problems.push_back(memlock_problem(bytes, facts));
    }
    if (facts.cgroup && bytes > facts.cgroup->left()) {
      problems.push_back(cgroup_problem(bytes, *facts.cgroup));
    }
    if (facts.available && bytes > *facts.available) {
      problems.push_back(available_problem(bytes, *facts.available));
    }
  }
  if (problems.empty()) return {};
  return fail(errc::limit_exceeded,
              fmt::format("the pool cannot be pinned: {}", fmt::join(problems, "; ")));
}

std::string in_words(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> units{"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t at = 0;
  for (; value >= 1024 && at + 1 < units.size(); ++at)
    value /= 1024;
  if (at == 0) return fmt::format("{} bytes", bytes);
  return fmt::format("{} bytes ({:.1f} {})", bytes, value, units[at]);
}

}  // namespace kvd
