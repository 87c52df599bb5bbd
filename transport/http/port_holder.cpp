#include "transport/http/port_holder.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace kvd::http {

namespace {

namespace fs = std::filesystem;

constexpr const char* state_listen = "0A";  // include/net/tcp_states.h

// Socket inodes of the listeners on `port`, from one of /proc/net/tcp and /proc/net/tcp6:
//   sl local_address:port rem_address:port st tx:rx tr:tm retrnsmt uid timeout inode ...
void add_listeners(const char* table, std::uint16_t port, std::vector<std::string>& inodes) {
  std::ifstream file(table);
  const auto wanted = fmt::format(":{:04X}", port);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
        timeout >> inode;
    if (fields && state == state_listen && local.ends_with(wanted)) inodes.push_back(inode);
  }
}

bool holds(const fs::path& process, const std::vector<std::string>& inodes) {
  std::error_code ignored;  // another user's process, or one that just ended
  for (auto entry = fs::directory_iterator(process / "fd", ignored);
       entry != fs::directory_iterator(); entry.increment(ignored)) {
    const auto target = fs::read_symlink(entry->path(), ignored).string();
    for (const auto& inode : inodes)
      if (target == "socket:[" + inode + "]") return true;
    if (ignored == std::errc::permission_denied) return false;
  }
  return false;
}

std::optional<std::string> find_process(const std::vector<std::string>& inodes) {
  std::error_code ignored;
  for (auto entry = fs::directory_iterator("/proc", ignored); entry != fs::directory_iterator();
       entry.increment(ignored)) {
    const auto pid = entry->path().filename().string();
    if (!std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      continue;
    if (!holds(entry->path(), inodes)) continue;
    std::string command;
    std::ifstream comm(entry->path() / "comm");
    std::getline(comm, command);
    return fmt::format("pid {} ({})", pid, command);
  }
  return std::nullopt;
}

}  // namespace

std::string port_holder(std::uint16_t port) {
  try {
    std::vector<std::string> inodes;
    add_listeners("/proc/net/tcp", port, inodes);
    add_listeners("/proc/net/tcp6", port, inodes);
    if (inodes.empty()) return "a socket that does not listen, or one of another network namespace";
    if (auto process = find_process(inodes)) return *process;
    return fmt::format("a process of another user; 'sudo ss -ltnp sport = :{}' names it", port);
  } catch (const std::exception&) {
    return "unknown";
  }
}

}  // namespace kvd::http
