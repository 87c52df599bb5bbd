// LINK: kvd_storage
// A file that is anything: starting on it, reading, appending and checking neither crash nor hang.
//
// The input patches a small log that was killed. Its first byte says whether checksums are made
// right again afterwards, so that the fuzzer reaches what lies behind them. A record that is served
// must have the bytes of its number.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <xxhash.h>

#include "storage/aligned_bytes.hpp"
#include "storage/fsck.hpp"
#include "storage/little_endian.hpp"
#include "storage/memory_file.hpp"
#include "storage/segment_log.hpp"
#include "tests/fuzz/byte_reader.hpp"

using namespace kvd;

namespace {

constexpr std::uint64_t segment = 256 << 10;
constexpr std::uint64_t records = 6;
constexpr std::uint64_t record_payload = 40 << 10;  // five a segment
// The interesting places: where each structure of the sample lies.
constexpr std::uint64_t structures[] = {0,
                                        segment,
                                        segment + 512,
                                        segment + 512 + 512 + record_payload,
                                        2 * segment - 1024,
                                        2 * segment - 512,
                                        2 * segment,
                                        2 * segment + 512};

struct exchange {
  explicit exchange(std::uint64_t n) : hash("block " + std::to_string(n)), memory(record_payload) {
    seeded_random(n).fill(memory.span());
    piece = {memory.data(), record_payload};
  }
  record_identity identity() const { return {"tenant", 0, {1, 2}, hash}; }

  std::string hash;
  aligned_bytes memory;
  io_piece piece{};
  int error = -1;
};

int append(segment_log& log, memory_file& file, exchange& of) {
  record_write write;
  write.identity = of.identity();
  write.payload = {&of.piece, 1};
  write.owner = &of;
  write.on_done = [](record_write& done, int error) noexcept {
    static_cast<exchange*>(done.owner)->error = error;
  };
  log.append(write);
  while (log.busy() > 0)
    file.poll({});
  return of.error;
}

int read(segment_log& log, memory_file& file, exchange& into) {
  record_read read;
  read.identity = into.identity();
  read.payload = {&into.piece, 1};
  read.owner = &into;
  read.on_done = [](record_read& done, int error) noexcept {
    static_cast<exchange*>(done.owner)->error = error;
  };
  log.read(read);
  while (log.busy() > 0)
    file.poll({});
  return into.error;
}

const memory_file::image& killed_log() {
  static const auto image = [] {
    memory_file file(memory_file::image(3 * segment));
    seeded_random random(1);
    const fake_clock time;
    auto log = segment_log::open(file, {durability::segment, segment}, random, time);
    if (!log) std::abort();
    for (std::uint64_t n = 0; n < records; ++n) {
      exchange one(n);
      if (append(**log, file, one) != 0) std::abort();
    }
    while (file.pending() > 0)
      file.poll({});
    return file.contents();
  }();
  return image;
}

// Makes the checksum of what begins at `at` right, if it is `bytes` long and in the file.
void mend(memory_file::image& image, std::uint64_t at, std::uint64_t bytes, std::uint64_t seed) {
  if (bytes < 16 || at > image.size() || bytes > image.size() - at) return;
  const std::span<std::byte> of(image.data() + at, bytes);
  put_number(of, 8, XXH3_64bits_withSeed(of.data() + 16, of.size() - 16, seed));
}

void mend_all(memory_file::image& image) {
  mend(image, 0, 4096, 0);
  const auto super = ssd::decode_superblock(std::span(image).first(4096));
  if (!super) return;
  for (std::uint64_t i = 0; i < 2; ++i) {
    const auto base = segment * (i + 1);
    const auto generation = get_number<std::uint64_t>(std::span(image).subspan(base), 24);
    const auto seed = super->secret ^ generation;
    mend(image, base, 512, super->secret);
    for (std::uint64_t at = base + 512; at + 512 < base + segment; at += 512) {
      if (ssd::looks_like_record(std::span(image).subspan(at))) {
        mend(image, at, get_number<std::uint32_t>(std::span(image).subspan(at), 56), seed);
      }
    }
    const auto trailer = std::span(image).subspan(base + segment - 512, 512);
    const auto list = get_number<std::uint32_t>(trailer, 32) * std::uint64_t{512};
    if (list <= segment - 512) {
      put_number(trailer, 40,
                 XXH3_64bits_withSeed(image.data() + base + list, segment - 512 - list, seed));
    }
    mend(image, base + segment - 512, 512, seed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  fuzz::byte_reader from(input, size);
  auto image = killed_log();
  const bool mended = from.byte() % 2 == 1;
  // Patches: which structure, how far into it, how many bytes, the bytes.
  while (!from.empty()) {
    const auto base = structures[from.below(std::size(structures))];
    const auto at = base + from.byte() * std::uint64_t{from.below(2) == 0 ? 1U : 8U};
    const auto bytes = from.bytes(1 + from.below(16));
    if (at + bytes.size() <= image.size())
      std::memcpy(image.data() + at, bytes.data(), bytes.size());
  }
  if (mended) mend_all(image);
  memory_file file(std::move(image));
  fsck(file, false);
  seeded_random random(2);
  const fake_clock time;
  auto log = segment_log::open(file, {durability::segment, segment}, random, time);
  if (!log) {
    if (log.error().detail.empty()) std::abort();
    return 0;
  }
  for (std::uint64_t n = 0; n < records + 12; ++n) {
    exchange wanted(n);
    exchange got(n);
    std::memset(got.memory.data(), 0, got.memory.size());
    if (n >= records) append(**log, file, wanted);
    // Mended checksums bless any content of a payload's own header, but never another payload.
    if (read(**log, file, got) == 0 &&
        std::memcmp(wanted.memory.data(), got.memory.data(), record_payload) != 0 && !mended) {
      std::abort();
    }
  }
  if (!(*log)->close()) std::abort();
  const auto after = fsck(file, true);
  if (!after.valid) std::abort();
  return 0;
}
