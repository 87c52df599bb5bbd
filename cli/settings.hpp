#pragma once
// Readers of two layers of options: the command line and the environment. Each turns its input into
// settings for core/options.hpp and reports what is no option at all, with the nearest right name.
// Pure functions over their arguments; any thread.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/options.hpp"

namespace kvd {

struct environment_variable {
  std::string name;
  std::string value;
};

// The environment of this process.
std::vector<environment_variable> process_environment();

// `arguments` are those behind the command's name. Positional arguments are errors.
std::vector<setting> settings_from_arguments(std::span<const option> table,
                                             std::span<const std::string> arguments,
                                             findings& found);

// KVD_<NAME> of every option, and the foreign names of the table. An empty variable counts as not
// set. A KVD_* name that means nothing is a warning, but for the names that belong to tests, builds
// and clients, and the service links that Kubernetes puts into every pod.
std::vector<setting> settings_from_environment(std::span<const option> table,
                                               std::span<const environment_variable> variables,
                                               findings& found);

}  // namespace kvd
