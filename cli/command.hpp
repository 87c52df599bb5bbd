#pragma once
// Which function a command line reaches. One row of the table in command.cpp is one command; names
// of two words (`bench copy`) are found before those of one.

#include <span>
#include <string>
#include <string_view>

namespace kvd {

// A command line, a configuration or a file that makes no sense.
inline constexpr int exit_usage = 2;

using command_line = std::span<const std::string>;

struct command {
  std::string_view name;     // one or two words
  std::string_view summary;  // one line for `kvd help`
  // Gets what follows the name; returns the exit status. Null: has not landed.
  int (*run)(command_line rest);
  // The full help text. Null: the command prints its own when it is given --help.
  std::string (*help)();
};

std::span<const command> command_table();

// Runs the command that `args` (without the program's name) names. Returns its exit status; 2 for
// a command line that names none.
int dispatch(command_line args);

}  // namespace kvd
