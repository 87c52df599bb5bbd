#include "actors/node.hpp"

#include <csignal>
#include <cstdlib>
#include <cstring>

#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

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

class server_process {
public:
  server_process(server_node& node, const server_options& options, int signals, int wake)
      : node_(node), options_(options), signals_(signals), wake_(wake) {}

  int run() {
    while (true) {
      if (wait()) {
        if (draining_) {
          log::warn("node", "asked to stop a second time: ending now");
          std::_Exit(EXIT_FAILURE);
        }
        begin_drain();
      }
      if (auto failed = node_.claim_failure()) {
        log::error("node", "the pool could not be claimed: {}", failed->detail);
        return EXIT_FAILURE;
      }
      if (draining_ && (node_.drained() || clock_.now() > deadline_)) return finish();
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
    deadline_ = clock_.now() + options_.drain_timeout;
    log::info("node", "draining: new work is refused, loads have {} s to end",
              options_.drain_timeout.count());
    node_.begin_drain();
  }

  int finish() const {
    if (!node_.drained()) log::warn("node", "the drain deadline passed: what still runs is cut");
    return EXIT_SUCCESS;
  }

  server_node& node_;
  const server_options& options_;
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

int run_server(const server_options& options) {
  log::set_level(options.log_level);
  keep_freed_memory();
  const descriptor signals(open_signals());
  const descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (signals.get() < 0 || wake.get() < 0) {
    log::error("node", "cannot wait for signals: {}", std::strerror(errno));
    return EXIT_FAILURE;
  }
  const auto on_shutdown = [fd = wake.get()] {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
  };
  auto node = server_node::create(options, on_shutdown);
  if (!node) {
    log::error("node", "{}", node.error().detail);
    return EXIT_FAILURE;
  }
  const int status = server_process(**node, options, signals.get(), wake.get()).run();
  node->reset();
  log::info("node", "stopped");
  return status;
}

}  // namespace kvd
