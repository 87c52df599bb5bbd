#pragma once
// Which resident block goes first when room is needed.
//
// A policy orders resident blocks; it never owns bytes and never sees keys, only a 64-bit
// fingerprint by which it may remember blocks that are gone (ghosts). Blocks are named by their
// record number in the block index, so a policy keeps its lists in arrays indexed by that number.
// The index record already holds the fingerprint, so a policy asks for it instead of keeping a
// second copy: 8 bytes a block less.
//
// Owner: block_store, which calls it under one lock; a policy is single-threaded. Callers pass
// the blocks of a request leaf first, so that roots are the most recent and go last.
//
// Call order for one block: insert, touch*, then either evict (which returns it) or remove. When
// room is short, admit comes first, then as many evict as it takes, then insert.
// After reserve() no call allocates.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/error.hpp"

namespace kvd {

using block_index = std::uint32_t;
inline constexpr block_index no_block = ~block_index{0};

// Decides whether a candidate may go now (not pinned, right pool node, ...).
class evictable {
public:
  virtual bool operator()(block_index candidate) noexcept = 0;
  // What insert was given for `resident`.
  virtual std::uint64_t fingerprint(block_index resident) const noexcept = 0;

protected:
  ~evictable() = default;
};

class eviction_policy {
public:
  virtual ~eviction_policy() = default;

  virtual std::string_view name() const noexcept = 0;
  // Record numbers stay below `blocks_max`; about `capacity` blocks fit (ghost lists are sized by
  // it). May be called again with larger figures; keeps what it knows.
  virtual void reserve(std::uint32_t blocks_max, std::uint32_t capacity) = 0;
  // Whether a new block may displace old ones; asked only when room is short, leaf first. Once one
  // block of a request is let in, those nearer the root go in too, whatever is answered for them:
  // a block behind a hole could never be part of a prefix. Counts as a use.
  virtual bool admit(std::uint64_t fingerprint) noexcept = 0;
  // REQUIRES: `block` is not resident.
  virtual void insert(block_index block, std::uint64_t fingerprint) noexcept = 0;
  // REQUIRES: `block` is resident; `fingerprint` is what insert was given.
  virtual void touch(block_index block, std::uint64_t fingerprint) noexcept = 0;
  // Left for another reason than pressure (cleanup, moved slab). REQUIRES: resident.
  virtual void remove(block_index block) noexcept = 0;
  // Takes out and returns the first block in eviction order that `may_go` accepts; refused ones
  // keep their place or become most recent. no_block when none of the resident ones may go.
  virtual block_index evict(evictable& may_go) noexcept = 0;
  virtual std::uint32_t resident() const noexcept = 0;
  // What reserve allocated, in bytes.
  virtual std::size_t memory_bytes() const noexcept = 0;
};

// `lru`, `arc`, `s3fifo`, `tinylfu` (PegaFlow's --enable-lfu-admission), or the default's name; ""
// means the default. invalid_argument names the accepted values.
result<std::unique_ptr<eviction_policy>> make_eviction_policy(std::string_view name);

}  // namespace kvd
