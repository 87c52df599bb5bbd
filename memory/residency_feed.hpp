#pragma once
// What came to be found in RAM and what ceased to be, for whoever tells other nodes.
//
//   block_store, under the lock of a block's shard --push()--> ring --take()--> registrar
//
// Events of one block come out in the order of its changes, so that the last one says how it is.
// The ring never blocks: when it is full all events are lost, take() says so once, and the taker
// then looks through the store (block_store::for_each_sealed) while it goes on taking events.
//
// Threads: any push, one takes. Allocates when made, never later.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/limits.hpp"
#include "memory/block_table.hpp"

namespace kvd {

struct residency_event {
  scope_id in = 0;
  bool resident = false;
  std::uint8_t size = 0;
  std::array<char, limits::hash_bytes_max> bytes{};

  std::string_view hash() const noexcept { return {bytes.data(), size}; }
};

class residency_feed {
public:
  // `wake` is called, on any thread and under a lock of the store, when events come after all had
  // been taken. REQUIRES: capacity > 0.
  residency_feed(std::size_t capacity, std::function<void()> wake);

  // REQUIRES: hash.size() <= limits::hash_bytes_max.
  void push(scope_id in, std::string_view hash, bool resident) noexcept;

  // Appends up to `events_max` events. True: none, all since the last call were lost.
  bool take(std::vector<residency_event>& out, std::size_t events_max);
  bool empty() const;

private:
  const std::function<void()> wake_;
  mutable std::mutex mutex_;  // a few nanoseconds each; the ring is as hot as the block table
  std::vector<residency_event> ring_;  // GUARDED_BY(mutex_)
  std::size_t first_ = 0;              // GUARDED_BY(mutex_)
  std::size_t count_ = 0;              // GUARDED_BY(mutex_)
  bool lost_ = false;                  // GUARDED_BY(mutex_)
  bool awake_ = false;                 // GUARDED_BY(mutex_): the taker knows that there is work
};

}  // namespace kvd
