#pragma once
// Fetches from SSD, by the query that asked: what each waits for, and the pins it holds.
//
//   queued -> running (slots claimed, reads under way) -> over -> settled by the client's next poll
//
// What a fetch brings up is an ordinary block of the store from the moment it was read and checked.
// It stays pinned until the query is answered, is not heard of for a while, or its instance ends.
//
// Threads: any. The table's lock guards the map alone, each fetch has a lock for its own state;
// table before fetch.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/clock.hpp"
#include "memory/block_store.hpp"
#include "memory/lower_tier.hpp"

namespace kvd {

struct ssd_fetch {
  // Set at the start.
  std::uint64_t instance = 0;
  std::string request;
  std::uint32_t group = 0;
  scope_id in = 0;
  std::vector<std::string> hashes;       // what to bring up, in prefix order
  std::vector<std::uint32_t> positions;  // all of them
  time_point begun{};

  // Of the thread that takes it in: positions that another copy fills just now.
  std::vector<std::uint32_t> busy;

  std::atomic<bool> cancelled{false};
  std::atomic<std::uint32_t> reads{0};  // under way, plus one while it is being taken in
  std::atomic<bool> over{false};

  std::mutex mutex;
  std::vector<block_index> pins;  // GUARDED_BY(mutex)
  std::uint32_t brought = 0;      // GUARDED_BY(mutex)
  bool released = false;          // GUARDED_BY(mutex): later pins are given back at once
  time_point heard_of{};          // GUARDED_BY(mutex)
};

class ssd_fetch_table {
public:
  // `store` outlives it.
  explicit ssd_fetch_table(block_store& store) : store_(store) {}
  ~ssd_fetch_table();

  std::shared_ptr<ssd_fetch> find(const query_id& id) const;
  // False when there is one of that id.
  bool add(const std::shared_ptr<ssd_fetch>& fetch);
  std::shared_ptr<ssd_fetch> take(const query_id& id);
  // Cancels and forgets: those of an instance that ended; those not heard of since `before`, which
  // the number tells.
  void drop_instance(std::uint64_t serial);
  std::size_t drop_idle(time_point before);
  std::size_t size() const;

  // Holds pins for the fetch, or gives them back when nobody wants it any more; `brought` of these
  // blocks it has read.
  void hold(ssd_fetch& fetch, std::span<const block_index> pinned, std::uint32_t brought);
  // Gives all pins back, and those that still come. Returns how many blocks it had brought.
  std::size_t release(ssd_fetch& fetch);

private:
  struct by_id {
    using is_transparent = void;
    using key = std::tuple<std::uint64_t, std::string_view, std::uint32_t>;
    template<class A, class B>
    bool operator()(const A& a, const B& b) const {
      return key(a) < key(b);
    }
  };
  using own_key = std::tuple<std::uint64_t, std::string, std::uint32_t>;
  template<class Condition>
  std::size_t drop_if(Condition condition);

  block_store& store_;
  mutable std::mutex mutex_;
  std::map<own_key, std::shared_ptr<ssd_fetch>, by_id> fetches_;  // GUARDED_BY(mutex_)
};

}  // namespace kvd
