#include "transport/peer/peer_devices.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "transport/peer/open_peer_port.hpp"

namespace kvd {

namespace {

constexpr std::string_view rdma_class = "/sys/class/infiniband";

std::vector<std::string> entries_of(const std::filesystem::path& folder) {
  std::vector<std::string> out;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed)) {
    out.push_back(at->path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The network device of the same card, or nothing.
std::string network_name_of(const std::string& rdma) {
  const auto names = entries_of(std::filesystem::path(rdma_class) / rdma / "device" / "net");
  return names.empty() ? std::string() : names.front();
}

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<std::string> peer_device_names() {
  std::vector<std::string> out;
  for (const auto& device : network_devices())
    out.push_back(device.name);
  for (auto& name : entries_of(rdma_class))
    out.push_back(std::move(name));
  return out;
}

result<peer_devices> choose_peer_devices(const std::vector<std::string>& names) {
  peer_devices out;
  const auto network = network_devices();
  const auto rdma = entries_of(rdma_class);
  const auto add_network = [&](const std::string& name) {
    const auto at = std::find_if(network.begin(), network.end(),
                                 [&](const network_device& d) { return d.name == name; });
    if (at != network.end()) out.network.push_back(*at);
    return at != network.end();
  };
  for (const auto& name : names) {
    const auto device = name.substr(0, name.find(':'));
    if (has_name(rdma, device)) {
      out.rdma.push_back(name == device ? device + ":1" : name);
      add_network(network_name_of(device));
    } else if (!add_network(name)) {
      return fail(errc::invalid_argument,
                  fmt::format("network device {} does not exist or has no address; there are: {}",
                              name, fmt::join(peer_device_names(), ", ")));
    }
  }
  if (!names.empty()) return out;
  for (const auto& device : rdma)
    out.rdma.push_back(device + ":1");
  const auto real = std::find_if(network.begin(), network.end(),
                                 [](const network_device& d) { return !d.loopback; });
  if (real != network.end()) {
    out.network.push_back(*real);
  } else if (!network.empty()) {
    out.network.push_back(network.front());
  }
  return out;
}

}  // namespace kvd
