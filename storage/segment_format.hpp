#pragma once
// The bytes of an SSD file: superblock, segment headers, records and footers, drawn in
// docs/ssd-format.md.
//
// Encoders fill whole units, padding included; decoders trust a field only once its checksum is
// right, but for sizes that say how far the checksum reaches, which are bounded first. Pure: no
// I/O. Numbers are little endian. "unit" is 512 bytes, whatever the alignment is.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "memory/topology.hpp"
#include "storage/ssd_index.hpp"

struct XXH3_state_s;

namespace kvd {

// What a stored block is; two blocks are interchangeable exactly when all four are equal.
struct record_identity {
  std::string_view name_space;
  std::uint32_t group = 0;
  layout_fingerprint fingerprint;
  std::string_view hash;
};

// 128 bits of the identity, for the index; a read compares the identity itself.
record_key key_of(const record_identity& of) noexcept;

namespace ssd {

inline constexpr std::uint32_t version = 1;
inline constexpr std::uint64_t unit_bytes = 512;
inline constexpr std::uint64_t superblock_bytes = 4096;
inline constexpr std::uint64_t segment_bytes_min = 256 << 10;
inline constexpr std::uint64_t segment_bytes_max = std::uint64_t{1} << 30;
inline constexpr std::size_t record_fields_bytes = 80;
inline constexpr std::size_t list_entry_bytes = 28;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

struct superblock {
  std::array<std::byte, 16> uuid{};
  std::uint64_t secret = 0;     // seeds every other checksum; never leaves the file
  std::uint32_t alignment = 0;  // of records, headers and footers
  std::uint64_t segment_bytes = 0;
  std::uint32_t segment_count = 0;
  std::uint64_t first_segment = 0;  // offset
  std::uint32_t epoch = 0;          // counts openings: the upper half of every generation
  bool clean = false;               // the last owner closed it

  std::uint64_t offset_of(std::uint32_t segment) const {
    return first_segment + segment * segment_bytes;
  }
};

// REQUIRES: `page` has superblock_bytes.
void encode_superblock(const superblock& from, std::span<std::byte> page) noexcept;
// invalid_argument: not a kvd SSD file, another version, a wrong checksum or an impossible field.
result<superblock> decode_superblock(std::span<const std::byte> page);

struct segment_header {
  std::uint32_t segment = 0;
  std::uint64_t generation = 0;
};

// REQUIRES: `out` has `alignment` bytes.
void encode_segment_header(const superblock& of, const segment_header& from,
                           std::span<std::byte> out) noexcept;
result<segment_header> decode_segment_header(const superblock& of, std::uint32_t segment,
                                             std::span<const std::byte> in);

struct record_header {
  record_identity identity;  // decoded: views into the bytes
  std::uint64_t generation = 0;
  std::uint32_t segment = 0;
  std::uint32_t offset = 0;  // units from the segment's start
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_checksum = 0;
};

std::uint64_t record_header_bytes(const record_identity& identity,
                                  std::uint32_t alignment) noexcept;
inline std::uint64_t record_header_bytes_max(std::uint32_t alignment) {
  return round_up(record_fields_bytes + limits::id_bytes_max + limits::hash_bytes_max, alignment);
}
inline std::uint64_t record_bytes(const record_header& of, std::uint32_t alignment) {
  return record_header_bytes(of.identity, alignment) + round_up(of.payload_bytes, alignment);
}
// REQUIRES: `out` has record_header_bytes().
void encode_record_header(const superblock& of, const record_header& from,
                          std::span<std::byte> out) noexcept;
// Quick: whether it is worth to decode.
bool looks_like_record(std::span<const std::byte> in) noexcept;
// A record of this segment's life at this place, which ends before the segment does. `in` may go on
// behind the header.
result<record_header> decode_record_header(const superblock& of, const segment_header& in_segment,
                                           std::uint32_t offset, std::span<const std::byte> in);

// One line of a footer.
struct list_entry {
  record_key key;
  std::uint32_t offset = 0;
  std::uint32_t payload_units = 0;
  std::uint32_t record_units = 0;
  friend bool operator==(const list_entry&, const list_entry&) = default;
};

struct trailer {
  std::uint32_t count = 0;
  std::uint64_t list_offset = 0;  // bytes from the segment's start
  std::uint64_t list_checksum = 0;
};

// The whole footer: the list, rounded up, and the trailer's unit.
inline std::uint64_t footer_bytes(std::uint64_t records, std::uint32_t alignment) {
  return round_up(records * list_entry_bytes, alignment) + alignment;
}
// REQUIRES: entries by offset; `out` has footer_bytes(), and lies at the segment's end.
void encode_footer(const superblock& of, const segment_header& in_segment,
                   std::span<const list_entry> entries, std::span<std::byte> out) noexcept;
// From the last `alignment` bytes of a segment; not_found when there is no trailer at all.
result<trailer> decode_trailer(const superblock& of, const segment_header& in_segment,
                               std::span<const std::byte> in);
// REQUIRES: `in` has the bytes between list_offset and the trailer.
result<std::vector<list_entry>> decode_list(const superblock& of, const segment_header& in_segment,
                                            const trailer& from, std::span<const std::byte> in);

// The checksum of a payload, piece by piece.
class payload_digest {
public:
  payload_digest();
  ~payload_digest();
  payload_digest(const payload_digest&) = delete;
  payload_digest& operator=(const payload_digest&) = delete;
  void start(const superblock& of, std::uint64_t generation, std::uint32_t segment,
             std::uint32_t offset) noexcept;
  void add(std::span<const std::byte> bytes) noexcept;
  std::uint64_t value() const noexcept;

private:
  XXH3_state_s* state_;
};

}  // namespace ssd
}  // namespace kvd
