#pragma once
// What address() of a port says, as bytes: who it is, what it offers, and over which links.
//
//   "kvdp" | version | boot id, 16 | key, 16 | sections: { type u8, bytes u32, ... }
//
// Numbers are little-endian. A section of an unknown type is skipped, so that a newer node may say
// more. A link that is not offered has no section. Pure functions; any thread. Errors are
// invalid_argument and say which part is wrong.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace kvd {

inline constexpr std::size_t boot_id_bytes = 16;
inline constexpr std::size_t peer_key_bytes = 16;

struct peer_region_extent {
  std::uint64_t pool_offset;
  std::uint64_t bytes;
};

// Plain TCP; see stream_wire.hpp.
struct peer_stream_section {
  std::uint16_t port = 0;
  std::vector<std::string> hosts;  // names or literals, one a network device; 1 to 32
};

// A Unix socket that hands the pool's memory over; see mapped_link.hpp.
struct peer_mapped_section {
  std::string host_id;       // of the kernel that runs: equal ids, same host
  std::uint64_t device = 0;  // of the socket, so that its path means the same file
  std::uint64_t inode = 0;
  std::string path;
};

struct peer_ucx_section {
  struct region_key {
    std::uint64_t address;  // of the region in the holder's process
    std::string rkey;
  };
  std::uint16_t port = 0;
  std::vector<std::string> hosts;
  std::vector<region_key> keys;  // one a region
};

struct peer_address {
  using region = peer_region_extent;
  using stream_section = peer_stream_section;
  using mapped_section = peer_mapped_section;
  using ucx_section = peer_ucx_section;

  std::string boot_id;  // boot_id_bytes
  std::string key;      // peer_key_bytes: who does not know it is not answered
  std::vector<region> regions;
  std::optional<stream_section> stream;
  std::optional<mapped_section> mapped;
  std::optional<ucx_section> ucx;
};

// limit_exceeded when it would be longer than limits::peer_address_bytes_max.
result<std::string> encode(const peer_address& address);
result<peer_address> decode_peer_address(std::string_view bytes);

}  // namespace kvd
