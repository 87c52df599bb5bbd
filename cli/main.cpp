// The executable: everything else is a library, so that tests reach it.

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "transport/peer/open_peer_port.hpp"

int main(int argc, char** argv) {
  // Before any handler of ours and any thread is there.
  kvd::reset_peer_library_signals();
  try {
    const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
    return kvd::dispatch(arguments);
  } catch (const std::exception& e) {
    // Nothing of ours throws: this is a bug, or memory ran out.
    std::fprintf(stderr, "kvd: %s\n", e.what());
    return 1;
  }
}
