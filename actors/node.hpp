#pragma once
// The process around the roles: signals, drain, exit status.

#include "actors/metaserver_options.hpp"
#include "actors/server_options.hpp"

namespace kvd {

// The roles that one process has; null: not this one.
struct process_roles {
  const server_options* server = nullptr;
  const metaserver_options* metaserver = nullptr;
};

// Runs them until SIGTERM, SIGINT or a server's Shutdown call, then drains the server: exit status
// 0. The metaserver ends last, so that a server beside it can say goodbye. A second signal ends at
// once. 1: a role could not start, or memory could not be claimed; the log says why.
// REQUIRES: at least one role.
int run_process(const process_roles& roles);

}  // namespace kvd
