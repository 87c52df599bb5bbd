#pragma once
// The roles that one process can take, and those that a later version brings. Names of
// `kvd run --roles`, and of sections in a configuration file.

#include <string_view>

namespace kvd {

inline constexpr std::string_view landed_roles[] = {"server", "metaserver"};
inline constexpr std::string_view later_roles[] = {"coordinator", "serve-batch", "router"};

}  // namespace kvd
