#pragma once
// What the metaserver role is told at start. Filled by cli/ from flags, environment and file; every
// field's default, unit and meaning stand in the option table (cli/metaserver_options.cpp).

#include <chrono>
#include <cstdint>
#include <string>

#include "core/log.hpp"

namespace kvd {

struct metaserver_options {
  std::string addr = "127.0.0.1:50056";
  std::string http_addr = "0.0.0.0:9092";
  log::level log_level = log::level::info;
  std::chrono::seconds node_stale{30};
  std::chrono::minutes ttl{120};
  std::chrono::seconds sweep_interval{600};
  std::uint64_t max_entries = 0;      // (block, node) records; 0: by memory
  std::string admin_token;            // from --admin-token-file; empty: loopback only
  std::string effective_json = "{}";  // every effective value and its source, for GET /config
};

}  // namespace kvd
