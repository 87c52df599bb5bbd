#pragma once
// What the commands of all roles share on the way from settings to a running role: the file layer,
// the admin token, checks of addresses, and how a plan is shown. Any thread; reads files only
// through the reader that it is handed.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/config_file.hpp"
#include "core/options.hpp"

namespace kvd {

// Adds section [role] of the file that --config or KVD_CONFIG names, flag first.
void add_file_settings(std::span<const option> table, std::string_view role,
                       const file_reader& read, std::vector<setting>& settings, findings& found);

// The token that the file named by `where` holds; empty: none given, or an error was found.
std::string read_token(const effective_option& where, const file_reader& read, findings& found);

// Two listeners need two ports; port 0 is a new one each time.
void check_ports(const effective_option& first, const effective_option& second, findings& found);

// Every effective value with its source, in aligned columns. No secret is in it.
std::string describe_values(const resolution& values, bool token_is_set);

// For GET /config: {"pool-size":{"value":"30gb","bytes":32212254720,"source":"default"},...}.
std::string effective_json(const resolution& values);

// To stderr; with errors also that nothing was started, and which help lists the options.
void print_findings(const findings& found, std::string_view command);

}  // namespace kvd
