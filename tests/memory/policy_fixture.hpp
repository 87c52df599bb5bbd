#pragma once
// A cache of a fixed number of blocks around an eviction policy, for its tests.

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "memory/eviction_policy.hpp"

namespace kvd {

class policy_cache final : public evictable {
public:
  policy_cache(eviction_policy& policy, std::uint32_t capacity) : policy_(policy) {
    grow(capacity);
  }

  bool operator()(block_index candidate) noexcept override {
    ++asked;
    return pinned.count(keys_[candidate]) == 0;
  }
  std::uint64_t fingerprint(block_index resident) const noexcept override {
    return keys_[resident];
  }

  void grow(std::uint32_t capacity) {
    policy_.reserve(capacity, capacity);
    for (auto block = static_cast<block_index>(keys_.size()); block < capacity; ++block) {
      free_.push_back(block);
    }
    keys_.resize(capacity);
  }
  bool has(std::uint64_t key) const { return blocks_.count(key) != 0; }
  std::size_t size() const { return blocks_.size(); }

  // Evicts one; 0 when none may go. Keys are never 0.
  std::uint64_t evict() {
    const auto block = policy_.evict(*this);
    if (block == no_block) return 0;
    const auto key = keys_[block];
    drop(key);
    return key;
  }
  void insert(std::uint64_t key) {
    const auto block = free_.back();
    free_.pop_back();
    keys_[block] = key;
    blocks_[key] = block;
    policy_.insert(block, key);
  }
  void touch(std::uint64_t key) { policy_.touch(blocks_.at(key), key); }
  void remove(std::uint64_t key) {
    policy_.remove(blocks_.at(key));
    drop(key);
  }
  // Touches, or makes room and inserts when the policy admits it; whether it was in.
  bool access(std::uint64_t key) {
    if (has(key)) {
      touch(key);
      return true;
    }
    if (free_.empty() && (!policy_.admit(key) || evict() == 0)) return false;
    insert(key);
    return false;
  }

  std::set<std::uint64_t> pinned;
  std::size_t asked = 0;

private:
  void drop(std::uint64_t key) {
    free_.push_back(blocks_.at(key));
    blocks_.erase(key);
  }

  eviction_policy& policy_;
  std::vector<std::uint64_t> keys_;  // by block
  std::map<std::uint64_t, block_index> blocks_;
  std::vector<block_index> free_;
};

}  // namespace kvd
