#pragma once
// A log on a memory file, with records whose bytes follow from their number, for the tests.

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "storage/aligned_bytes.hpp"
#include "storage/memory_file.hpp"
#include "storage/segment_log.hpp"

namespace kvd::test {

inline constexpr std::uint64_t small_segment = 256 << 10;

inline memory_file::image blank(std::uint64_t segments) {
  return memory_file::image(small_segment * (segments + 1));
}

// Record `number`: hash, size and content are functions of it.
struct sample {
  explicit sample(std::uint64_t n, std::uint64_t bytes = 0)
      : number(n), name_space("ns" + std::to_string(n % 3)), hash("hash-" + std::to_string(n)),
        payload_bytes(bytes != 0 ? bytes : 512 * (1 + n % 40)) {}

  record_identity identity() const {
    return {name_space, static_cast<std::uint32_t>(number % 2), {number, ~number}, hash};
  }
  record_key key() const { return key_of(identity()); }
  std::vector<std::byte> payload() const {
    std::vector<std::byte> bytes(payload_bytes);
    seeded_random(number).fill(bytes);
    return bytes;
  }

  std::uint64_t number;
  std::string name_space;
  std::string hash;
  std::uint64_t payload_bytes;
};

inline constexpr int not_done = -1;

// One append on its way, in two pieces when it is big enough.
struct writing {
  explicit writing(const sample& s) : what(s), memory(s.payload_bytes) {
    const auto bytes = s.payload();
    std::memcpy(memory.data(), bytes.data(), bytes.size());
    const auto first = s.payload_bytes > 4096 ? std::uint64_t{4096} : s.payload_bytes;
    pieces.push_back({memory.data(), first});
    if (first < s.payload_bytes) pieces.push_back({memory.data() + first, s.payload_bytes - first});
    request.identity = what.identity();
    request.payload = pieces;
    request.owner = this;
    request.on_done = [](record_write& write, int error) noexcept {
      auto& self = *static_cast<writing*>(write.owner);
      self.times += 1;
      self.error = error;
    };
  }
  writing(const writing&) = delete;
  writing& operator=(const writing&) = delete;

  sample what;
  aligned_bytes memory;
  std::vector<io_piece> pieces;
  record_write request;
  int error = not_done;
  int times = 0;
};

struct reading {
  explicit reading(const sample& s) : what(s), memory(s.payload_bytes) {
    piece = {memory.data(), s.payload_bytes};
    request.identity = what.identity();
    request.payload = {&piece, 1};
    request.owner = this;
    request.on_done = [](record_read& read, int error) noexcept {
      static_cast<reading*>(read.owner)->error = error;
    };
  }
  reading(const reading&) = delete;
  reading& operator=(const reading&) = delete;
  bool right() const {
    const auto bytes = what.payload();
    return std::memcmp(memory.data(), bytes.data(), bytes.size()) == 0;
  }

  sample what;
  aligned_bytes memory;
  io_piece piece{};
  record_read request;
  int error = not_done;
};

struct log_fixture {
  explicit log_fixture(memory_file::image image, log_options how = {},
                       std::uint32_t alignment = 512)
      : file(std::move(image), alignment), options(how), random(7) {
    if (options.segment_bytes == 0) options.segment_bytes = small_segment;
  }

  result<void> open() {
    log.reset();
    auto opened = segment_log::open(file, options, random, time);
    if (!opened) return tl::unexpected<error>(opened.error());
    log = std::move(*opened);
    return {};
  }
  void must_open() {
    const auto opened = open();
    REQUIRE_MESSAGE(opened.has_value(), (opened ? std::string() : opened.error().detail));
  }
  void poll() {
    for (int i = 0; i < 100000 && (log->busy() > 0 || file.pending() > 0); ++i)
      file.poll({});
    REQUIRE(log->busy() == 0);
  }
  int write(const sample& s) {
    writing one(s);
    log->append(one.request);
    poll();
    return one.error;
  }
  // -2: wrong bytes, which nobody may ever see.
  int read(const sample& s) {
    reading one(s);
    log->read(one.request);
    poll();
    return one.error == 0 && !one.right() ? -2 : one.error;
  }

  memory_file file;
  log_options options;
  seeded_random random;
  fake_clock time;
  std::unique_ptr<segment_log> log;
};

}  // namespace kvd::test
