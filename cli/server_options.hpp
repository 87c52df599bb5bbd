#pragma once
// The options of the server role: their table, and server_options filled from resolved values.
// Adding an option is one row there and one field in actors/server_options.hpp. Any thread.

#include <span>

#include "actors/server_options.hpp"
#include "core/options.hpp"

namespace kvd {

// `config`, `check-config` and `admin-token-file` are of the table, but cli/server.cpp reads them.
std::span<const option> server_option_table();

// REQUIRES: `values` was resolved from server_option_table().
server_options fill_server_options(const resolution& values);

}  // namespace kvd
