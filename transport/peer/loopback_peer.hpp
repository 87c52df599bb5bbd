#pragma once
// Peers inside one process, for tests and the simulation: real bytes, scripted faults, no threads.
//
// A loopback_network connects loopback_peers. Nothing happens until step(): it carries out, in
// order of time, all that is due by the clock, callbacks included. Which read meets which fault is
// scripted by the pair of nodes: a queue of faults for the next reads, then one that stays.
//
// Owner: the test. One thread. The network outlives its peers, the clock both.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "transport/peer/peer_port.hpp"

namespace kvd {

struct loopback_fault {
  enum class kind : std::uint8_t {
    none,         // all pieces arrive after `delay`
    unreachable,  // after `delay`
    refuse,       // after `delay`
    lose,         // after `delay`, with the first `pieces` of them arrived
    hang,         // the first `pieces` arrive after `delay`, the others never
    late,         // as hang, but the others are written `late_by` after the read ended
  };
  kind what = kind::none;
  duration delay{0};
  std::size_t pieces = 0;
  // hang, late: how long after its end a read is released.
  duration late_by{0};
};

class loopback_peer;

class loopback_network {
public:
  // `bytes_per_second` of one read, beside the delays; 0: no time at all.
  explicit loopback_network(const clock& time, std::uint64_t bytes_per_second = 0)
      : time_(time), bytes_per_second_(bytes_per_second) {}
  loopback_network(const loopback_network&) = delete;
  loopback_network& operator=(const loopback_network&) = delete;

  // For the next read that `reader` sends `holder` (boot ids) and no rule is queued for yet.
  void script(const std::string& reader, const std::string& holder, loopback_fault fault);
  // For all reads that no script is left for.
  void always(const std::string& reader, const std::string& holder, loopback_fault fault);

  // How many events it carried out; 0: nothing was due.
  std::size_t step();
  // When step() has something to do next; nothing: never, as things are.
  std::optional<time_point> next_due() const;
  // Reads between read() and on_released.
  std::size_t reads() const noexcept { return reads_.size(); }

private:
  friend class loopback_peer;
  using pair = std::pair<std::string, std::string>;
  struct running {
    peer_read* read = nullptr;
    loopback_peer* reader = nullptr;
    std::string holder;
    loopback_fault fault;
    time_point arrival{};  // when `delay` is over
    time_point release{};  // once ended
    bool arrived = false;  // what arrives has
    bool ended = false;
  };

  loopback_fault fault_for(const pair& nodes);
  time_point due(const running& of) const;
  void carry_out(std::list<running>::iterator at);
  // True when that ends the read.
  std::optional<peer_outcome> arrive(running& of);
  void copy(running& of, std::size_t first, std::size_t last, bool mark);
  void end(running& of, peer_outcome outcome);
  void release(std::list<running>::iterator at);

  const clock& time_;
  std::uint64_t bytes_per_second_;
  std::map<std::string, loopback_peer*> peers_;  // by boot id
  std::map<pair, std::deque<loopback_fault>> scripts_;
  std::map<pair, loopback_fault> rules_;
  std::list<running> reads_;  // in the order of read()
};

class loopback_peer final : public peer_port {
public:
  // REQUIRES: no other peer of the network has this boot id; it is 1 to 64 bytes.
  loopback_peer(loopback_network& network, std::string boot_id, const peer_pool& pool,
                peer_metrics& metrics, std::size_t reads_max = 4096);
  // Its own reads end with `stopped`, those that others have from it with `link_lost` at their next
  // step.
  ~loopback_peer() override;
  loopback_peer(const loopback_peer&) = delete;
  loopback_peer& operator=(const loopback_peer&) = delete;

  const std::string& address() const noexcept override { return address_; }
  result<std::shared_ptr<peer_remote>> open(std::string_view address) override;
  bool read(const std::shared_ptr<peer_remote>& from, peer_read& read) noexcept override;
  void cancel(peer_read& read) noexcept override;

private:
  friend class loopback_network;
  // Where a piece is; null when it is not of the pool.
  const std::byte* find(std::uint64_t offset, std::uint64_t bytes) const noexcept;

  loopback_network& network_;
  std::string boot_id_;
  std::string address_;
  const peer_pool& pool_;
  peer_metrics& metrics_;
  std::size_t reads_max_;
  std::size_t reads_ = 0;  // accepted and not ended
  bool stopping_ = false;
};

}  // namespace kvd
