#pragma once
// Transfer locks: blocks that another node is reading out of this pool.
//
//   lock() -> the other node reads -> unlock()      or expire(), when it was never heard of again
//
// A session pins its blocks. The reader counts the time-out from before it asked and throws away
// what arrives later than that, so that an expired session's slots may be used again while a read
// of them is still under way. Threads: any.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "core/server_metrics.hpp"
#include "memory/block_store.hpp"

namespace kvd {

class transfer_locks {
public:
  // The references outlive it.
  transfer_locks(block_store& store, const clock& time, random_source& random,
                 sharing_metrics& metrics, std::chrono::seconds timeout);
  ~transfer_locks();
  transfer_locks(const transfer_locks&) = delete;
  transfer_locks& operator=(const transfer_locks&) = delete;

  struct session {
    std::string id;  // unguessable
    std::vector<block_index> blocks;
    std::vector<std::uint32_t> positions;  // which of the asked ones they are, ascending
  };
  // Pins those of `hashes` that are here, none of them perhaps. limit_exceeded when
  // limits::transfer_sessions_max are open.
  result<session> lock(scope_id in, hash_list hashes);
  // How many blocks it held; 0 when there is none of that name.
  std::size_t unlock(std::string_view id);
  // Ends the sessions whose time is over; returns how many.
  std::size_t expire();

  std::chrono::seconds timeout() const noexcept { return timeout_; }

private:
  struct held {
    std::vector<block_index> blocks;
    time_point since{};
  };
  void end(held& over) noexcept;

  block_store& store_;
  const clock& clock_;
  random_source& random_;
  sharing_metrics& metrics_;
  const std::chrono::seconds timeout_;
  std::mutex mutex_;                                   // held per session, not per block
  std::map<std::string, held, std::less<>> sessions_;  // GUARDED_BY(mutex_)
};

}  // namespace kvd
