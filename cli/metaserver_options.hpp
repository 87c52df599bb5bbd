#pragma once
// The options of the metaserver role: their table, and metaserver_options filled from resolved
// values. Adding an option is one row there and one field in actors/metaserver_options.hpp.

#include <span>

#include "actors/metaserver_options.hpp"
#include "core/options.hpp"

namespace kvd {

// `config`, `check-config` and `admin-token-file` are of the table, but cli/metaserver.cpp reads
// them.
std::span<const option> metaserver_option_table();

// REQUIRES: `values` was resolved from metaserver_option_table().
metaserver_options fill_metaserver_options(const resolution& values);

}  // namespace kvd
