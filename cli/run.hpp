#pragma once
// `kvd run`: several roles in one process.
//
// With one role its options are as in its own command. With several, an option that only one of
// them has goes there; --config, --check-config, --log-level and --admin-token-file go to all; the
// rest is named with its role: --metaserver.addr. Environment variables follow the same rule, and
// addresses in them are the first role's.

#include <span>
#include <string>

#include "cli/metaserver.hpp"
#include "cli/server.hpp"

namespace kvd {

struct both_plans {
  server_plan server;
  metaserver_plan metaserver;
};

// Both roles, their options mixed. Findings carry the role's name.
both_plans plan_both(std::span<const std::string> arguments,
                     std::span<const environment_variable> environment, const file_reader& read);

// `kvd run --roles ROLE[,...]`, followed by the options of the roles.
int run(std::span<const std::string> arguments);

std::string run_help();

}  // namespace kvd
