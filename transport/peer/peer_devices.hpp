#pragma once
// Which network devices links use: those that `--nics` names, or what the machine has.
//
// A name is one that `ip link` shows (eth0) or one that `ibv_devices` shows (mlx5_0, with a port:
// mlx5_0:1). A name that does not exist is invalid_argument; the detail lists those that do.

#include <string>
#include <vector>

#include "core/error.hpp"
#include "transport/peer/socket_address.hpp"

namespace kvd {

struct peer_devices {
  std::vector<network_device> network;  // each with at least one address
  std::vector<std::string> rdma;        // as UCX names them: mlx5_0:1
};

// Without names: the first network device that is no loopback (that one when there is no other),
// and every RDMA device.
result<peer_devices> choose_peer_devices(const std::vector<std::string>& names);

}  // namespace kvd
