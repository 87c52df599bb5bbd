#include "storage/file_lock.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/clock.hpp"
#include "storage/file_space.hpp"

namespace kvd {

namespace {

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

// The kernel ends an io_uring, and with it the last hold on its file, a while after its process;
// until then the lock is listed without one.
constexpr auto ghost_patience = std::chrono::seconds(5);
constexpr int ghost_pause_ms = 10;

std::int64_t holder_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return 0;
  return flock_holder(text_of("/proc/locks"), status.st_dev, status.st_ino);
}

bool is_alive(std::int64_t pid) {
  return pid != 0 && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH);
}

std::string holder_text(std::int64_t pid) {
  if (pid == 0) return "a process that this one cannot see";
  if (pid == ::getpid()) return fmt::format("this process ({}) itself", pid);
  auto name = text_of(fmt::format("/proc/{}/comm", pid));
  while (!name.empty() && name.back() == '\n')
    name.pop_back();
  return name.empty() ? fmt::format("process {}", pid) : fmt::format("process {} ({})", pid, name);
}

}  // namespace

// A line: `1: FLOCK  ADVISORY  WRITE 4711 fd:01:262217 0 EOF`; device and holder as this
// process's namespaces see them. Waiters have `->` behind the number.
std::int64_t flock_holder(std::string_view proc_locks, std::uint64_t device,
                          std::uint64_t inode) noexcept {
  std::int64_t by_inode = 0;
  while (!proc_locks.empty()) {
    const auto end = proc_locks.find('\n');
    const std::string line(proc_locks.substr(0, end));
    proc_locks.remove_prefix(end == std::string_view::npos ? proc_locks.size() : end + 1);
    long long pid = 0;
    unsigned high = 0;
    unsigned low = 0;
    unsigned long long number = 0;
    // NOLINTNEXTLINE: a fixed format of the kernel
    if (std::sscanf(line.c_str(), "%*u: FLOCK %*s %*s %lld %x:%x:%llu", &pid, &high, &low,
                    &number) != 4) {
      continue;
    }
    if (number != inode || pid <= 0) continue;
    if (makedev(high, low) == device) return pid;
    by_inode = pid;  // btrfs shows files under a device of their own
  }
  return by_inode;
}

result<void> lock_file(int fd, const std::string& path) {
  const system_clock time;
  const auto patience = time.now() + ghost_patience;
  while (true) {
    const int error = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error == 0) return {};
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK) return tl::unexpected(file_error(path, "flock", error));
    const auto holder = holder_of(fd);
    if (is_alive(holder) || time.now() > patience)
      return fail(errc::unavailable, fmt::format("{} is in use by {}", path, holder_text(holder)));
    ::poll(nullptr, 0, ghost_pause_ms);  // nothing announces it
  }
}

}  // namespace kvd
