#include "transport/peer/open_peer_port.hpp"

#include <csignal>
#include <cstring>

#include <dlfcn.h>

#include "transport/peer/node_port.hpp"

namespace kvd {

result<std::unique_ptr<peer_port>> open_peer_port(const peer_options& options,
                                                  const peer_pool& pool, const clock& time,
                                                  random_source& random, peer_metrics& metrics) {
  auto port = std::make_unique<node_port>(options, pool, time, metrics);
  if (auto started = port->start(random); !started) {
    return tl::unexpected(std::move(started.error()));
  }
  return port;
}

void reset_peer_library_signals() noexcept {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction present {};
    if (::sigaction(signal, nullptr, &present) != 0) continue;
    const auto* const handler = (present.sa_flags & SA_SIGINFO) != 0
                                    ? reinterpret_cast<const void*>(present.sa_sigaction)
                                    : reinterpret_cast<const void*>(present.sa_handler);
    // Sanitizers have theirs, which are to stay.
    Dl_info owner{};
    if (::dladdr(handler, &owner) == 0 || owner.dli_fname == nullptr) continue;
    if (std::strstr(owner.dli_fname, "libucs") == nullptr) continue;
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    ::sigaction(signal, &plain, nullptr);
  }
}

}  // namespace kvd
