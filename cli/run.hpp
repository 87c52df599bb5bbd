#pragma once
// `kvd run`: several roles in one process, and the seam between options and actors.

#include <span>
#include <string>

#include "actors/server_options.hpp"

namespace kvd {

// Runs until told to stop; returns the exit status.
int run_roles(const server_options& options);

// `kvd run --roles server[,...]`, followed by the options of the server role.
int run(std::span<const std::string> arguments);

std::string run_help();

}  // namespace kvd
