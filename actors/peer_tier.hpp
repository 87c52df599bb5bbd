#pragma once
// Blocks from other nodes, and the one place where RAM, SSD and peers are blended for a query.
//
//   query -> fetch() -> locate at a metaserver -> what SSD has comes from SSD,
//            the rest: hello -> lock -> claim slots -> read -> seal -> unlock, from each owner
//
// A query that SSD can complete alone never comes here; one that no metaserver answers for gets
// what SSD has. A block that one peer fails to give is asked of the next that holds it; when none
// is left, or time is up, it is a miss. What arrives after the holder's lock may have ended is
// thrown away. Slots that the transport may still write to are not given back before it has let go.
//
// Threads: poll, fetch, settle and status from any; everything else on the owner's, to which
// answers are posted. Owner: the peer actor. The port ends before it does.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/clock.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"
#include "memory/lower_tier.hpp"
#include "memory/whole_claims.hpp"
#include "storage/ssd_fetch.hpp"
#include "transport/directory/announcer.hpp"
#include "transport/peer/peer_calls.hpp"
#include "transport/peer/peer_port.hpp"

namespace kvd {

struct peer_tier_options {
  std::size_t queries_max = 4096;          // that fetch, all together
  std::size_t blocks_per_transfer = 1024;  // and as many pieces as a read may have
  duration locate_timeout = std::chrono::milliseconds(500);
  duration lock_timeout = std::chrono::seconds(2);
  // A read may take that long, and a second for so many bytes.
  duration read_time = std::chrono::seconds(2);
  std::uint64_t bytes_per_second_min = 100'000'000;
  duration query_time_max = std::chrono::seconds(60);
  duration idle_max = std::chrono::seconds(60);  // of a query that nobody asks for again
  // A node that failed is asked again after this; a node that nothing is asked of is forgotten.
  duration pause = std::chrono::seconds(5);
  duration forget_after = std::chrono::minutes(10);
};

class peer_tier final : public lower_tier {
public:
  using task = std::function<void()>;

  struct parts {
    block_store& store;
    announcer& directories;
    peer_port& port;
    peer_calls_factory connect;
    stored_tier* ssd = nullptr;  // null: none
    const clock& time;
    sharing_metrics& metrics;
    // Runs a task on the owner's thread, later, or drops it when the owner ends.
    std::function<void(task)> post;
  };
  // What `with` refers to outlives it.
  peer_tier(const peer_tier_options& how, parts with);
  ~peer_tier() override;

  progress poll(const query_id& id) noexcept override;
  bool fetch(const query_id& id, scope_id in, hash_list asked, std::span<const block_index> pinned,
             bool whole) override;
  brought_up settle(const query_id& id) noexcept override;

  // Fetches of an instance that is gone are given up.
  void forget_instance(std::uint64_t serial);
  // Gives up what is late or nobody asks for, and looks again at blocks that others were copying.
  void tick();
  // Ends all calls to other nodes; what they would have answered comes no more.
  void stop_asking();

  struct report {
    std::string node;
    std::string link;  // what its pool is read over; empty: not known yet
    std::string trouble;
    std::uint64_t blocks = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<report> status() const;

private:
  struct query;
  struct transfer;
  struct node;
  using shared_query = std::shared_ptr<query>;

  void begin(const shared_query& of);
  void plan(const shared_query& of, const std::vector<std::uint32_t>& asked,
            const located_blocks& found);
  void pin_present(query& of);
  void assign(const shared_query& of, std::span<const std::uint32_t> positions);
  void greet(node& who);
  void greeted(node& who, result<peer_hello> said);
  void lock(transfer& one);
  void locked(std::uint64_t number, result<peer_lock> said);
  void start_read(transfer& one, const peer_lock& granted);
  void read_done(std::uint64_t number, peer_outcome outcome);
  void read_released(std::uint64_t number);
  void take_arrived(transfer& one);
  void fail(transfer& one, std::string_view why, bool avoid);
  void end_transfer(std::uint64_t number);
  void look_again(const shared_query& of);
  void over_if_nothing_runs(query& of);
  node& node_of(const std::string& name);
  transfer* find(std::uint64_t number);
  void publish();

  const peer_tier_options options_;
  const parts with_;
  ssd_fetch_table queries_;

  // All below: the owner's thread, but for the last.
  std::map<std::string, std::unique_ptr<node>> nodes_;
  std::unordered_map<std::uint64_t, std::unique_ptr<transfer>> transfers_;
  std::uint64_t next_transfer_ = 0;
  std::vector<shared_query> running_;
  mutable std::mutex mutex_;
  std::vector<report> reports_;  // GUARDED_BY(mutex_)
};

}  // namespace kvd
