#pragma once
// What a node and the directory keep to see, without naming blocks, whether they agree.
//
//   (namespace, hash) --> directory_key --> bucket --> one 64-bit sum a bucket
//
// A digest does not depend on the order of what was added, and one add undoes one remove. Both
// sides must give every block once: adding a block twice is another digest. Two sides whose
// digests are equal hold the same blocks in that bucket, but for one chance in 2^64.
//
// The fingerprint travels (as digests) between nodes of different versions: it never changes.
// Not made against forged collisions: whoever reads a block checks what it gets.
//
// Threads: the owner's; nothing here locks. Memory: 8 KiB a digest.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvd {

// 128 bits that stand for a block of a namespace, on every node alike.
struct directory_key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const directory_key&) const = default;
};

// The fingerprint of a namespace, for many hashes of it.
class directory_namespace {
public:
  explicit directory_namespace(std::string_view name) noexcept;
  directory_key key_of(std::string_view hash) const noexcept;

private:
  directory_key name_;
};

directory_key key_of(std::string_view name_space, std::string_view hash) noexcept;

class directory_digest {
public:
  static constexpr std::uint32_t bucket_count = 1024;  // a part of the wire: kvd.Directory.Compare

  // Of a key: the ten upper bits of `high`.
  static constexpr std::uint32_t bucket_of(const directory_key& key) noexcept {
    return static_cast<std::uint32_t>(key.high >> 54);
  }
  // What one block adds to the digest of its bucket, modulo 2^64.
  static constexpr std::uint64_t term_of(const directory_key& key) noexcept {
    return key.low ^ (key.high << 10);
  }

  void add(const directory_key& key) noexcept { sums_[bucket_of(key)] += term_of(key); }
  void remove(const directory_key& key) noexcept { sums_[bucket_of(key)] -= term_of(key); }
  void clear() noexcept { sums_.fill(0); }
  // By bucket; 0 where there is nothing.
  std::span<const std::uint64_t> buckets() const noexcept { return sums_; }

private:
  std::array<std::uint64_t, bucket_count> sums_{};
};

}  // namespace kvd
