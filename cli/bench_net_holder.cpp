#include "cli/bench_net_holder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.hpp"
#include "memory/arena.hpp"
#include "transport/peer/open_peer_port.hpp"

namespace kvd {

namespace {

constexpr const char* reader_host = "10.197.0.1";
constexpr const char* holder_host = "10.197.0.2";

result<void> call(std::vector<std::string> words) {
  const auto line = fmt::format("{}", fmt::join(words, " "));
  auto printed = printed_by(std::move(words));
  if (!printed)
    return fail(printed.error().code, fmt::format("{}: {}", line, printed.error().detail));
  return {};
}

result<void> own_namespace() {
  if (::unshare(CLONE_NEWNET) == 0) return call({"ip", "link", "set", "lo", "up"});
  return fail(errc::permission_denied, fmt::format("--netns needs root: {}", std::strerror(errno)));
}

result<void> bring_up(const std::string& device, const std::string& host) {
  if (auto added = call({"ip", "addr", "add", host + "/24", "dev", device}); !added) return added;
  return call({"ip", "link", "set", device, "up"});
}

bool send_line(int to, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  return ::write(to, &size, sizeof size) == sizeof size &&
         ::write(to, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

result<std::string> receive_line(int from) {
  std::uint32_t size = 0;
  std::string text;
  if (::recv(from, &size, sizeof size, MSG_WAITALL) == sizeof size && size < (1 << 20)) {
    text.resize(size);
    if (size == 0 || ::recv(from, text.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size)) {
      return text;
    }
  }
  return fail(errc::io, "the other process of the benchmark ended");
}

void run_iperf_server() {
  if (::fork() != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  const auto port = fmt::format("{}", net_holder::iperf_port);
  ::execlp("iperf3", "iperf3", "-s", "-p", port.c_str(), nullptr);
  ::_exit(127);
}

// The child: says its address, or why it has none; ends with the pipe.
result<void> hold(const net_holder_plan& plan, int pipe) {
  std::string host = "127.0.0.1";
  if (plan.namespaces) {
    if (auto moved = own_namespace(); !moved) return moved;
    if (!send_line(pipe, "moved")) return {};
    if (auto go = receive_line(pipe); !go) return {};
    host = holder_host;
    if (auto up = bring_up("kvd-holder", host); !up) return up;
  }
  if (plan.iperf) run_iperf_server();
  const auto pages = shareable_page_supply();
  const auto base = pages->map(plan.pool_bytes, false);
  if (!base) return tl::unexpected(base.error());
  if (auto touched = pages->populate(*base, plan.pool_bytes); !touched) return touched;
  for (std::uint64_t at = 0; at < plan.pool_bytes; at += net_holder::cell_bytes)
    fill_known({*base + at, net_holder::cell_bytes}, at / net_holder::cell_bytes);
  const system_clock time;
  system_random random;
  peer_metrics metrics;
  peer_pool pool;
  pool.regions.push_back({*base, plan.pool_bytes, 0, pages->file_of(*base), 0});
  peer_options options;
  options.listen_host = host;
  options.advertise.assign(plan.streams, host);
  auto port = open_peer_port(options, pool, time, random, metrics);
  if (!port) return tl::unexpected(port.error());
  send_line(pipe, "ready");
  send_line(pipe, (*port)->address());
  (void)receive_line(pipe);  // until the reader closes
  port->reset();
  pages->unmap(*base, plan.pool_bytes);
  return {};
}

}  // namespace

result<std::string> printed_by(std::vector<std::string> words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errc::io, std::strerror(errno));
  std::vector<char*> arguments;
  for (auto& word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 65536> part;
  for (ssize_t got = 0; pid > 0 && (got = ::read(ends[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return fail(errc::io, "fork failed");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return fail(errc::not_found, fmt::format("{} is not installed", words[0]));
  }
  return fail(errc::io, fmt::format("{} ended with status {}", words[0], status));
}

result<std::unique_ptr<net_holder>> net_holder::start(const net_holder_plan& plan, const clock&) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(errc::io, std::strerror(errno));
  }
  const pid_t child = ::fork();
  if (child < 0) return fail(errc::io, std::strerror(errno));
  if (child == 0) {
    ::close(ends[0]);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto held = hold(plan, ends[1]);
    if (!held) send_line(ends[1], held.error().detail);
    ::_exit(held ? 0 : 1);
  }
  ::close(ends[1]);
  std::unique_ptr<net_holder> made(
      new net_holder(child, ends[0], plan.namespaces ? holder_host : "127.0.0.1"));
  auto said = receive_line(ends[0]);
  if (plan.namespaces && said == "moved") {
    if (auto moved = own_namespace(); !moved) return tl::unexpected(moved.error());
    if (auto linked = call({"ip", "link", "add", "kvd-reader", "type", "veth", "peer", "name",
                            "kvd-holder", "netns", fmt::format("{}", child)});
        !linked) {
      return tl::unexpected(linked.error());
    }
    if (auto up = bring_up("kvd-reader", reader_host); !up) return tl::unexpected(up.error());
    send_line(ends[0], "go");
    said = receive_line(ends[0]);
  }
  if (!said) return tl::unexpected(said.error());
  if (*said != "ready") return fail(errc::io, *said);
  auto address = receive_line(ends[0]);
  if (!address) return tl::unexpected(address.error());
  made->address_ = std::move(*address);
  return made;
}

net_holder::~net_holder() {
  ::close(pipe_);
  ::waitpid(child_, nullptr, 0);
}

}  // namespace kvd
