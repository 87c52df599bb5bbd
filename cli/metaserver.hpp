#pragma once
// `kvd metaserver`: from arguments, environment and file to a running role, or to a report. As
// cli/server.hpp, which says more.

#include <span>
#include <string>

#include "actors/metaserver_options.hpp"
#include "cli/config_file.hpp"
#include "cli/settings.hpp"
#include "core/options.hpp"

namespace kvd {

struct metaserver_plan {
  metaserver_options options;  // meaningful only without errors
  resolution values;
  findings found;
};

metaserver_plan plan_metaserver(std::span<const std::string> arguments,
                                std::span<const environment_variable> environment,
                                const file_reader& read);

// Every effective value with its source, in aligned columns. No secret is in it.
std::string describe_effective(const metaserver_plan& plan);

// Prints what was found to stderr; then prints the effective values (--check-config) or runs the
// role. Returns the exit status: 2 when there are errors.
int start_metaserver(const metaserver_plan& plan);

// The command. `--help` is the dispatcher's.
int metaserver(std::span<const std::string> arguments);

// What `kvd metaserver --help` prints.
std::string metaserver_help();

}  // namespace kvd
