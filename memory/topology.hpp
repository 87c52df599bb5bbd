#pragma once
// How the workers of one instance share a block: which layers each registered, and where the bytes
// of every (layer, tensor-parallel rank) cell lie inside a stored block.
//
// A stored block of a cache group is a list of *parts*. A part holds all cells that one set of
// workers owns (replicas of a layer form one set), so that whichever worker saves, it fills whole
// parts, and one part is one contiguous slot of the pool:
//
//   block --+-- part 0 (TP rank 0) : [layer.0 K|V][layer.1 K|V] ...
//           +-- part 1 (TP rank 1) : [layer.0 K|V][layer.1 K|V] ...
//
// Immutable once sealed. Pure: no I/O, no clock. Sizes are bytes.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"

namespace kvd {

// A cell starts on a cache line, so that no copy straddles one at its start.
inline constexpr std::uint64_t cell_alignment = 64;

// One layer as one worker registered it. Address of segment s of block b, from the tensor's start:
// b * block_stride + s * kv_stride.
struct layer_layout {
  std::string name;
  std::uint64_t num_blocks = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t kv_stride = 0;  // 0 when segments == 1
  std::uint32_t segments = 1;
  std::uint32_t group = 0;

  // K and V regions apart: two copies a block.
  bool split() const noexcept { return segments == 2 && kv_stride > segment_bytes; }
  std::uint64_t block_bytes() const noexcept { return segment_bytes * segments; }
  std::uint64_t block_stride() const noexcept { return split() ? segment_bytes : block_bytes(); }
};

// invalid_argument "layer <name>: ..." when the layout is impossible or leaves its tensor.
result<void> validate(const layer_layout& layer, std::uint64_t tensor_bytes);

struct worker_layout {
  std::int32_t device_id = 0;
  std::uint32_t tp_rank = 0;
  std::uint32_t pp_rank = 0;
  std::vector<layer_layout> layers;
};

// Where one worker's layer lies inside a stored block.
struct cell_place {
  std::uint32_t group = 0;
  std::uint32_t part = 0;
  std::uint32_t cell = 0;    // ordinal inside the part
  std::uint64_t offset = 0;  // bytes from the part's start
};

struct part_layout {
  std::uint64_t bytes = 0;
  std::uint32_t cells = 0;
};

struct layout_fingerprint {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const layout_fingerprint&, const layout_fingerprint&) = default;
};

struct group_layout {
  std::vector<part_layout> parts;
  std::uint64_t block_bytes = 0;   // of all parts
  std::uint32_t slots = 0;         // as PegaFlow counts: layers x tp_size, or shards
  layout_fingerprint fingerprint;  // equal exactly when stored blocks are interchangeable
};

class topology {
public:
  struct options {
    std::uint32_t tp_size = 1;
    bool page_first = false;
  };

  // REQUIRES: every layer passed validate(); device ids are distinct; tp_rank < tp_size.
  // topology_mismatch or invalid_argument says which layer or worker does not fit.
  static result<topology> seal(options how, std::span<const worker_layout> workers);

  const std::vector<group_layout>& groups() const noexcept { return groups_; }
  // Places of one worker's layers, parallel to its `layers`. REQUIRES: it was among `workers`.
  const std::vector<cell_place>& places(std::int32_t device_id) const {
    return places_.at(device_id);
  }

private:
  struct draft;
  std::vector<group_layout> groups_;
  std::unordered_map<std::int32_t, std::vector<cell_place>> places_;
};

}  // namespace kvd
