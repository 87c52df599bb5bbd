#pragma once
// `kvd server`: from arguments, environment and file to a running role, or to a report.
//
//   arguments, environment, file --> plan_server() --> server_plan --> start_server()
//
// Planning allocates, binds and opens nothing but the configuration and the token file, through the
// reader that the caller passes. Any thread.

#include <span>
#include <string>

#include "actors/server_options.hpp"
#include "cli/config_file.hpp"
#include "cli/settings.hpp"
#include "core/options.hpp"

namespace kvd {

struct server_plan {
  server_options options;  // meaningful only without errors
  resolution values;
  findings found;
};

server_plan plan_server(std::span<const std::string> arguments,
                        std::span<const environment_variable> environment, const file_reader& read);

// Every effective value with its source, in aligned columns. No secret is in it.
std::string describe_effective(const server_plan& plan);

// Prints what was found to stderr; then prints the effective values (--check-config) or runs the
// role. Returns the exit status: 2 when there are errors.
int start_server(const server_plan& plan);

// The command. `--help` is the dispatcher's.
int server(std::span<const std::string> arguments);

// What `kvd server --help` prints.
std::string server_help();

}  // namespace kvd
