#pragma once
// Tells metaservers which blocks this node holds, and keeps them right.
//
//   residency_feed -> drain() -> announced set, digest -> a queue a metaserver -> one call at a
//   time
//
// Each metaserver is told everything, unless two addresses turn out to be one directory: then one
// of them is told, and the other when that one is lost. Calls to one metaserver are ordered, and of
// two announcements of one block that wait the last one counts. Nothing is retried: a call that
// fails, a full queue and a metaserver that starts anew are all found by comparing digests, every
// few seconds, and mended bucket by bucket. PegaFlow's metaserver cannot compare, so it is told
// everything again after any of these, and now and then. Heartbeats go their own way.
//
// Owner: the registrar actor, which makes every call here but locate(), status() and the answers of
// links; those come from any thread and are posted to it.

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"
#include "memory/directory_digest.hpp"
#include "transport/directory/directory_link.hpp"
#include "transport/directory/scope_names.hpp"

namespace kvd {

struct announcer_options {
  std::size_t queue_blocks_max = 65'536;  // announcements that wait, a metaserver
  std::size_t blocks_per_call = 16'384;   // PegaFlow's figure
  duration heartbeat_max = std::chrono::seconds(3);
  duration compare_period = std::chrono::seconds(3);
  duration retell_period = std::chrono::minutes(20);  // to PegaFlow's, whose entries age
  block_index records_per_step = 32'768;              // of a look through the store
  std::size_t blocks_per_walk = 262'144;              // that one look through it collects
};

class announcer {
public:
  using task = std::function<void()>;

  // The references outlive it. `post` runs a task on the owner's thread, later, or drops it when
  // the owner ends.
  announcer(const announcer_options& how, std::vector<std::unique_ptr<directory_link>> links,
            const block_store& store, residency_feed& feed, const clock& time,
            sharing_metrics& metrics, std::function<void(task)> post);
  // Called, on the owner's thread, with blocks of which others hold copies enough.
  void on_reclaimable(std::function<void(scope_id, const std::vector<std::string>&)> hint) {
    hint_ = std::move(hint);
  }

  // Timers: heartbeats, comparisons, what is late.
  void tick();
  // The feed has something.
  void drain();
  // Says goodbye to all, and nothing after that; `done` is called when all have answered.
  void say_goodbye(task done);
  // Ends all calls. REQUIRES: the owner calls nothing any more.
  void stop_asking();

  // From the first metaserver that answers within `timeout`. `done` is called once, on any thread.
  // Any thread; unavailable when none is up.
  void locate(named_blocks blocks, bool over_gaps, duration timeout,
              directory_done<located_blocks> done);
  // Whether locate() has anybody to ask. Any thread.
  bool anybody_up() const noexcept { return up_count_.load() > 0; }

  struct report {
    std::string address;
    std::string directory_id;  // empty: PegaFlow's, or not heard of yet
    bool up = false;
    bool spare = false;  // it is another one's directory
    std::string trouble;
    std::size_t queued = 0;
    std::uint64_t mended = 0;  // buckets
  };
  // Any thread.
  std::vector<report> status() const;
  // Nothing waits and no metaserver differs, as far as is known. Owner's thread.
  bool settled() const;

private:
  struct key_hash {
    std::size_t operator()(const directory_key& key) const noexcept { return key.low; }
  };
  struct waiting {
    scope_id in = 0;
    bool resident = false;
    std::string hash;
  };
  struct told_directory {
    std::unique_ptr<directory_link> link;
    bool asking = false;   // a heartbeat, or the question who it is, is on its way
    bool calling = false;  // something that changes what it knows is on its way or being gathered
    bool compares = false;
    bool up = false;
    bool behind = true;  // it may not know everything that was announced
    std::string id;
    time_point heartbeat_at{};
    time_point compare_at{};  // or retell, when it cannot compare
    std::unordered_map<directory_key, waiting, key_hash> queue;
    std::deque<directory_key> order;       // of `queue`, oldest first
    std::vector<std::uint32_t> differing;  // buckets to be told anew
    std::uint64_t mended = 0;
    std::string trouble;
  };
  using scoped_hash = std::pair<scope_id, std::string>;
  // A look through the store, in steps: to count it anew, or for the blocks of some buckets.
  struct walk {
    bool recount = false;
    std::size_t directory = 0;  // whom the blocks are for
    std::bitset<directory_digest::bucket_count> wanted{};
    std::map<std::uint32_t, std::vector<scoped_hash>> found{};  // by bucket
    block_index at = 0;
  };
  // One call's worth of buckets.
  struct mending {
    std::vector<std::uint32_t> buckets;
    std::vector<named_blocks> blocks;
  };

  bool active(std::size_t which) const;
  void publish();
  void apply(const residency_event& event);
  void enqueue(told_directory& to, const directory_key& key, const residency_event& event);
  void pump(std::size_t which);
  void send_waiting(std::size_t which);
  void compare(std::size_t which);
  void beat(std::size_t which);
  void beaten(std::size_t which, const result<std::chrono::seconds>& outcome);
  void describe(std::size_t which, std::chrono::seconds stale_after);
  void failed(std::size_t which, const error& why);

  void begin_walk(walk begun);
  void step_walk();
  void mend_next(std::size_t which);
  void send_mended(std::size_t which, const std::shared_ptr<std::deque<mending>>& left);
  std::deque<mending> calls_of(walk& over);
  std::vector<named_blocks> by_name(std::vector<scoped_hash>& blocks);

  struct search;
  void ask(std::size_t from, const std::shared_ptr<search>& of);

  const announcer_options options_;
  const block_store& store_;
  residency_feed& feed_;
  const clock& clock_;
  sharing_metrics& metrics_;
  const std::function<void(task)> post_;
  std::function<void(scope_id, const std::vector<std::string>&)> hint_;

  scope_names names_;
  std::unordered_set<directory_key, key_hash> announced_;
  directory_digest digest_;  // of announced_
  std::vector<residency_event> events_;
  std::deque<walk> walks_;  // the first one is under way
  bool leaving_ = false;
  bool stepping_ = false;  // its next step is posted

  mutable std::mutex mutex_;     // short: what other threads read
  std::vector<report> reports_;  // GUARDED_BY(mutex_)
  std::atomic<std::size_t> up_count_{0};

  std::vector<told_directory> directories_;  // last: links answer while they end
};

}  // namespace kvd
