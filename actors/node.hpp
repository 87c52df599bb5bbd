#pragma once
// The process around the roles: signals, drain, exit status.

#include "actors/server_options.hpp"

namespace kvd {

// Runs the server role until SIGTERM, SIGINT or the Shutdown call, then drains: exit status 0.
// A second signal ends at once. 1: it could not start, or its memory could not be claimed; the log
// says why.
int run_server(const server_options& options);

}  // namespace kvd
