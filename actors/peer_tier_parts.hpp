#pragma once
// The pieces that a peer_tier is made of; for its own sources.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/peer_tier.hpp"

namespace kvd {

// What it waits for, as the SSD tier does, and where each block may come from.
struct peer_tier::query : ssd_fetch {
  bool whole = false;
  time_point deadline{};
  std::vector<std::string> nodes;
  std::vector<std::vector<std::uint32_t>> owners;  // by position, into `nodes`, best first
  std::vector<std::uint8_t> tried;                 // how many of them failed
  std::uint32_t transfers = 0;
  bool planned = false;
  std::atomic<bool> on_ssd{false};  // a part of it is fetched from there

  // By which its part on SSD is known there.
  std::string ssd_request() const { return request + "\x1fpeers"; }
};

struct peer_tier::transfer {
  std::uint64_t number = 0;
  peer_tier* tier = nullptr;
  shared_query of;
  node* from = nullptr;
  std::vector<std::uint32_t> positions;
  time_point begun{};
  time_point lock_until{};
  std::string session;
  std::vector<whole_claims::block> blocks;
  std::vector<peer_piece> pieces;  // parts of a block adjoin
  std::vector<piece_state> states;
  peer_read read;
  bool reading = false;
  bool done = false;
  bool released = false;

  std::mutex ending;  // between the port that ends the read and us who cancel it
  bool gone = false;  // GUARDED_BY(ending): the read is ours again

  void cancel(peer_port& port) {
    const std::lock_guard lock(ending);
    if (!gone) port.cancel(read);
  }
};

struct peer_tier::node {
  std::string name;
  std::unique_ptr<peer_calls> calls;
  std::shared_ptr<peer_remote> remote;  // null: say hello first
  bool greeting = false;
  std::vector<std::uint64_t> waiting;  // transfers, for the answer to it
  time_point avoid_until{};
  time_point used{};
  report seen;
};

}  // namespace kvd
