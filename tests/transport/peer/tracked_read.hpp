#pragma once
// Reads of peers that remember how they ended, and pools whose bytes are known.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "memory/arena.hpp"
#include "transport/peer/peer_port.hpp"

namespace kvd {

// One region of bytes that only this seed gives, as a memfd that others can map.
class known_pool {
public:
  known_pool(std::size_t bytes, std::uint64_t seed)
      : bytes_(std::max(bytes, std::size_t{2} << 20)), base_(*pages_->map(bytes_, false)) {
    seeded_random(seed).fill({base_, bytes});
    pool_.regions.push_back({base_, bytes, 0, pages_->file_of(base_), 0});
  }
  ~known_pool() { pages_->unmap(base_, bytes_); }
  known_pool(const known_pool&) = delete;
  known_pool& operator=(const known_pool&) = delete;
  const peer_pool& offered() const { return pool_; }
  const std::byte* at(std::uint64_t offset) const { return base_ + offset; }

private:
  std::unique_ptr<page_supply> pages_ = shareable_page_supply();
  std::size_t bytes_;
  std::byte* base_;
  peer_pool pool_;
};

// A read into memory of its own: a canary before, after and between the pieces.
class tracked_read : public peer_read {
public:
  static constexpr std::byte canary{0xc5};
  static constexpr std::size_t gap = 64;

  // Of (offset, bytes) each.
  explicit tracked_read(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& wanted) {
    std::size_t total = gap;
    for (const auto& [offset, bytes] : wanted)
      total += bytes + gap;
    memory_.assign(total, canary);
    std::size_t at = gap;
    for (const auto& [offset, bytes] : wanted) {
      pieces_.push_back({offset, memory_.data() + at, bytes});
      at += bytes + gap;
    }
    states_.resize(wanted.size());
    pieces = pieces_;
    states = states_;
    on_done = [](peer_read& read, peer_outcome outcome) noexcept {
      auto& self = static_cast<tracked_read&>(read);
      self.outcome_ = outcome;
      self.ended_.fetch_add(1, std::memory_order_release);
      self.ended_.notify_all();
    };
    on_released = [](peer_read& read) noexcept {
      auto& self = static_cast<tracked_read&>(read);
      self.released_.fetch_add(1, std::memory_order_release);
      self.released_.notify_all();
    };
  }
  tracked_read(const tracked_read&) = delete;
  tracked_read& operator=(const tracked_read&) = delete;

  bool ended() const { return ended_.load(std::memory_order_acquire) == 1; }
  bool released() const { return ended() && released_.load(std::memory_order_acquire) == 1; }
  void wait_ended() const { ended_.wait(0, std::memory_order_acquire); }
  void wait_released() const { released_.wait(0, std::memory_order_acquire); }
  // REQUIRES: ended().
  peer_outcome outcome() const { return ended() ? outcome_ : peer_outcome::count; }

  std::size_t arrived() const {
    std::size_t count = 0;
    for (const auto state : states_)
      count += state == piece_state::arrived ? 1 : 0;
    return count;
  }
  // Every piece that arrived has the pool's bytes, and no canary is touched.
  bool right(const known_pool& pool) const {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const auto& piece = pieces_[i];
      if (states_[i] == piece_state::arrived &&
          std::memcmp(piece.to, pool.at(piece.offset), piece.bytes) != 0) {
        return false;
      }
    }
    return canaries_whole();
  }
  bool canaries_whole() const {
    const auto* at = memory_.data();
    for (const auto& piece : pieces_) {
      if (!all_canary(at, static_cast<std::size_t>(piece.to - at))) return false;
      at = piece.to + piece.bytes;
    }
    return all_canary(at, gap);
  }
  bool untouched(std::size_t piece) const {
    return all_canary(pieces_[piece].to, pieces_[piece].bytes);
  }

private:
  static bool all_canary(const std::byte* at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (at[i] != canary) return false;
    }
    return true;
  }

  std::vector<std::byte> memory_;
  std::vector<peer_piece> pieces_;
  std::vector<piece_state> states_;
  peer_outcome outcome_ = peer_outcome::count;
  std::atomic<int> ended_{0};
  std::atomic<int> released_{0};
};

}  // namespace kvd
