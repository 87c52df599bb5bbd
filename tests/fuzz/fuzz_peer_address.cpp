// LINK: kvd_peer
// An address of a peer that is anything: it is refused, or says the same again when encoded.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/limits.hpp"
#include "transport/peer/peer_address.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvd;
  const auto decoded = decode_peer_address({reinterpret_cast<const char*>(data), size});
  if (!decoded) return 0;
  if (decoded->boot_id.size() != boot_id_bytes || decoded->key.size() != peer_key_bytes) abort();
  if (decoded->regions.size() > limits::peer_regions_max) abort();
  const auto encoded = encode(*decoded);
  if (!encoded) return 0;  // longer than it came: counts of one byte less
  const auto again = decode_peer_address(*encoded);
  if (!again || encode(*again) != *encoded) abort();
  return 0;
}
