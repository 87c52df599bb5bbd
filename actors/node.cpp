#include "actors/node.hpp"

#include <csignal>
#include <cstdlib>
#include <cstring>

#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "actors/metaserver_node.hpp"
#include "actors/server_node.hpp"
#include "core/log.hpp"

namespace kvd {

namespace {

// A file descriptor that is closed with its owner.
class descriptor {
public:
  explicit descriptor(int fd) : fd_(fd) {}
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  int get() const noexcept { return fd_; }

private:
  int fd_;
};

// Signals arrive as readable bytes, so that no handler runs anywhere.
int open_signals() {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return ::signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
}

// What the main thread waits for; it checks the drain and the claim at least this often.
constexpr int poll_ms = 50;

class role_process {
public:
  // `server` is null when this process has no such role: then there is nothing to drain.
  role_process(server_node* server, std::chrono::seconds drain_timeout, int signals, int wake)
      : server_(server), drain_timeout_(drain_timeout), signals_(signals), wake_(wake) {}

  int run() {
    while (true) {
      if (wait()) {
        if (draining_) {
          log::warn("node", "asked to stop a second time: ending now");
          std::_Exit(EXIT_FAILURE);
        }
        if (server_ == nullptr) return EXIT_SUCCESS;
        begin_drain();
      }
      if (server_ == nullptr) continue;
      if (auto failed = server_->claim_failure()) {
        log::error("node", "the pool could not be claimed: {}", failed->detail);
        return EXIT_FAILURE;
      }
      if (draining_ && (server_->drained() || clock_.now() > deadline_)) return finish();
    }
  }

private:
  // True when a signal or a shutdown call came.
  bool wait() const {
    pollfd fds[] = {{signals_, POLLIN, 0}, {wake_, POLLIN, 0}};
    ::poll(fds, 2, poll_ms);
    bool stop = false;
    if ((fds[0].revents & POLLIN) != 0) {
      signalfd_siginfo which{};
      stop = ::read(signals_, &which, sizeof which) == static_cast<ssize_t>(sizeof which);
      if (stop) log::info("node", "got {}", ::strsignal(static_cast<int>(which.ssi_signo)));
    }
    std::uint64_t calls = 0;
    if ((fds[1].revents & POLLIN) != 0) {
      stop = ::read(wake_, &calls, sizeof calls) == static_cast<ssize_t>(sizeof calls) || stop;
    }
    return stop;
  }

  void begin_drain() {
    draining_ = true;
    deadline_ = clock_.now() + drain_timeout_;
    log::info("node", "draining: new work is refused, loads have {} s to end",
              drain_timeout_.count());
    server_->begin_drain();
  }

  int finish() const {
    if (!server_->drained()) log::warn("node", "the drain deadline passed: what still runs is cut");
    return EXIT_SUCCESS;
  }

  server_node* server_;
  std::chrono::seconds drain_timeout_;
  int signals_;
  int wake_;
  system_clock clock_;
  bool draining_ = false;
  time_point deadline_{};
};

void keep_freed_memory() {
  // A request of 10,000 hashes is a buffer of 340 KB. Left alone, malloc maps, faults in and unmaps
  // each one; so it keeps up to 64 MiB that are free for the next.
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

}  // namespace

int run_process(const process_roles& roles) {
  log::set_level(roles.server != nullptr ? roles.server->log_level : roles.metaserver->log_level);
  keep_freed_memory();
  const descriptor signals(open_signals());
  const descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (signals.get() < 0 || wake.get() < 0) {
    log::error("node", "cannot wait for signals: {}", std::strerror(errno));
    return EXIT_FAILURE;
  }
  std::unique_ptr<metaserver_node> metaserver;
  if (roles.metaserver != nullptr) {
    auto made = metaserver_node::create(*roles.metaserver);
    if (!made) {
      log::error("node", "{}", made.error().detail);
      return EXIT_FAILURE;
    }
    metaserver = std::move(*made);
  }
  std::unique_ptr<server_node> server;
  std::chrono::seconds drain_timeout{0};
  if (roles.server != nullptr) {
    drain_timeout = roles.server->drain_timeout;
    auto made = server_node::create(*roles.server, [fd = wake.get()] {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
    });
    if (!made) {
      log::error("node", "{}", made.error().detail);
      return EXIT_FAILURE;
    }
    server = std::move(*made);
  }
  const int status = role_process(server.get(), drain_timeout, signals.get(), wake.get()).run();
  server.reset();
  metaserver.reset();
  log::info("node", "stopped");
  return status;
}

}  // namespace kvd
