#include "transport/peer/open_peer_port.hpp"

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

void reset_peer_library_signals() noexcept {}

}  // namespace kvd
