#include "transport/peer/open_peer_port.hpp"

namespace kvd {

result<std::unique_ptr<peer_port>> open_peer_port(const peer_options&, const peer_pool&,
                                                  const clock&, random_source&, peer_metrics&) {
  return fail(errc::not_configured, "no link between nodes has landed in this version");
}

std::vector<std::string> peer_device_names() {
  return {};
}

void reset_peer_library_signals() noexcept {}

}  // namespace kvd
