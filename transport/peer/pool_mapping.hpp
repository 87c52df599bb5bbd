#pragma once
// A peer's pool, mapped read-only. Owner: a mapped_link. Any thread reads what at() gives.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.hpp"
#include "transport/peer/event_loop.hpp"
#include "transport/peer/peer_address.hpp"
#include "transport/peer/peer_port.hpp"

namespace kvd {

class pool_mapping {
public:
  pool_mapping() = default;
  ~pool_mapping();
  pool_mapping(const pool_mapping&) = delete;
  pool_mapping& operator=(const pool_mapping&) = delete;

  // Maps `bytes` of the file at `file_offset`, aligned so that huge pages stay huge. The file must
  // reach that far, and be sealed against shrinking.
  result<void> add(const peer_address::region& region, const owned_fd& file,
                   std::uint64_t file_offset);
  // Null when that is not of the pool.
  const std::byte* at(std::uint64_t offset, std::uint64_t bytes) const noexcept;

private:
  struct mapped_range {
    void* base;
    std::size_t bytes;
  };
  std::vector<peer_region> regions_;
  std::vector<mapped_range> ranges_;
};

}  // namespace kvd
