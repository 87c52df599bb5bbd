#include "transport/device/copy_slice.hpp"

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

#include <sched.h>
#include <ucontext.h>

#include "transport/device/stream_copy.hpp"

namespace kvd {

namespace {

// Yields its core so often: a look-up that waits for one would otherwise wait for the kernel's next
// tick, up to 4 ms. Half a MiB takes 50 to 100 us; a yield that finds nobody waiting, under one.
constexpr std::uint64_t yield_bytes = 512 << 10;

// What this thread is copying, for the handler. The handler runs on the same thread, in the middle
// of the copy, so that signal fences are all the ordering there is to keep.
struct copy_in_progress {
  sigjmp_buf escape;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
  bool armed = false;
};
thread_local constinit copy_in_progress current{};

struct sigaction previous_action {};

bool within(const std::byte* at, const std::byte* begin, std::uint64_t bytes) {
  // The kernel may report the start of the page for memory errors.
  constexpr std::uintptr_t page_mask = 4095;
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  return address >= (first & ~page_mask) && address < first + bytes;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  std::atomic_signal_fence(std::memory_order_acquire);
  if (current.armed &&
      (within(at, current.from, current.bytes) || within(at, current.to, current.bytes))) {
    current.armed = false;
    // What returning from the handler would have restored.
    ::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(current.escape, 1);
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    // Nobody else handles it: the instruction faults again and the process dies as it would have.
    ::signal(signal, SIG_DFL);
  }
}

// No frame between here and the faulting instruction owns anything, so that leaving them by
// siglongjmp skips no destructor.
void copy_ranges(const copy_slice& slice) {
  auto skip = slice.skip;
  auto left = slice.bytes;
  std::uint64_t since_yield = 0;
  for (auto range = slice.ranges.begin(); left > 0;) {
    const auto bytes = std::min({range->bytes - skip, left, yield_bytes});
    current.to = range->to + skip;
    current.from = range->from + skip;
    current.bytes = bytes;
    std::atomic_signal_fence(std::memory_order_release);
    stream_copy(current.to, current.from, bytes);
    std::atomic_signal_fence(std::memory_order_release);
    left -= bytes;
    skip += bytes;
    if (skip == range->bytes) {
      ++range;
      skip = 0;
    }
    since_yield += bytes;
    if (since_yield >= yield_bytes) {
      ::sched_yield();
      since_yield = 0;
    }
  }
}

}  // namespace

void install_fault_guard() noexcept {
  static std::mutex mutex;  // two devices may be built at once
  const std::lock_guard lock(mutex);
  struct sigaction present {};
  ::sigaction(SIGBUS, nullptr, &present);
  if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == on_bus_error) return;
  previous_action = present;
  struct sigaction ours {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO;
  sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, nullptr);
}

bool copy_bytes(const copy_slice& slice) noexcept {
  // The handler restores the signal mask: saving it here would cost a system call a chunk.
  if (sigsetjmp(current.escape, 0) != 0) {
    // A streaming store before the fault must not overtake what is said about this copy.
    stream_fence();
    return false;
  }
  current.armed = true;
  copy_ranges(slice);
  current.armed = false;
  stream_fence();
  return true;
}

bool store_word(std::int64_t* to, std::int64_t value) noexcept {
  stream_fence();
  if (sigsetjmp(current.escape, 0) != 0) return false;
  current.to = reinterpret_cast<std::byte*>(to);
  current.from = current.to;
  current.bytes = sizeof value;
  current.armed = true;
  std::atomic_signal_fence(std::memory_order_release);
  std::atomic_ref(*to).store(value, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_release);
  current.armed = false;
  return true;
}

}  // namespace kvd
