// Footers and payload checksums of storage/segment_format.hpp.

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <xxhash.h>

#include "storage/little_endian.hpp"
#include "storage/segment_format.hpp"

namespace kvd::ssd {

namespace {

constexpr std::string_view footer_magic = "KVDFOOT\n";
constexpr std::size_t footer_sum_at = 8;
constexpr std::size_t footer_body_at = 16;

std::uint64_t seeded_sum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace

void encode_footer(const superblock& of, const segment_header& in_segment,
                   std::span<const list_entry> entries, std::span<std::byte> out) noexcept {
  assert(out.size() == footer_bytes(entries.size(), of.alignment));
  std::fill(out.begin(), out.end(), std::byte{0});
  const auto seed = of.secret ^ in_segment.generation;
  const auto list = out.first(out.size() - of.alignment);
  std::size_t at = 0;
  for (const auto& entry : entries) {
    put_number(list, at, entry.key.low);
    put_number(list, at + 8, entry.key.high);
    put_number(list, at + 16, entry.offset);
    put_number(list, at + 20, entry.payload_units);
    put_number(list, at + 24, entry.record_units);
    at += list_entry_bytes;
  }
  const auto end = out.last(of.alignment);
  std::memcpy(end.data(), footer_magic.data(), footer_magic.size());
  put_number(end, 16, in_segment.generation);
  put_number(end, 24, in_segment.segment);
  put_number(end, 28, static_cast<std::uint32_t>(entries.size()));
  put_number(end, 32, static_cast<std::uint32_t>((of.segment_bytes - out.size()) / unit_bytes));
  put_number(end, 36, version);
  put_number(end, 40, seeded_sum(list, seed));
  put_number(end, footer_sum_at, seeded_sum(end.subspan(footer_body_at), seed));
}

result<trailer> decode_trailer(const superblock& of, const segment_header& in_segment,
                               std::span<const std::byte> in) {
  if (in.size() != of.alignment ||
      std::memcmp(in.data(), footer_magic.data(), footer_magic.size()) != 0) {
    return fail(errc::not_found, "no footer");
  }
  // Of an earlier life of the segment: as good as none, and not worth a complaint.
  if (get_number<std::uint64_t>(in, 16) != in_segment.generation) {
    return fail(errc::not_found, "a footer of an earlier generation");
  }
  if (get_number<std::uint64_t>(in, footer_sum_at) !=
      seeded_sum(in.subspan(footer_body_at), of.secret ^ in_segment.generation)) {
    return fail(errc::invalid_argument, "the footer's checksum does not match");
  }
  trailer got;
  const auto segment = get_number<std::uint32_t>(in, 24);
  got.count = get_number<std::uint32_t>(in, 28);
  got.list_offset = get_number<std::uint32_t>(in, 32) * unit_bytes;
  got.list_checksum = get_number<std::uint64_t>(in, 40);
  const auto bytes = footer_bytes(got.count, of.alignment);
  if (segment != in_segment.segment || bytes > of.segment_bytes - of.alignment ||
      got.list_offset != of.segment_bytes - bytes) {
    return fail(errc::invalid_argument, fmt::format("footer of segment {} with {} records at {}",
                                                    segment, got.count, got.list_offset));
  }
  return got;
}

result<std::vector<list_entry>> decode_list(const superblock& of, const segment_header& in_segment,
                                            const trailer& from, std::span<const std::byte> in) {
  assert(in.size() == of.segment_bytes - of.alignment - from.list_offset);
  if (seeded_sum(in, of.secret ^ in_segment.generation) != from.list_checksum) {
    return fail(errc::invalid_argument, "the checksum of the footer's list does not match");
  }
  std::vector<list_entry> entries(from.count);
  const auto align = of.alignment / unit_bytes;
  std::uint64_t free_from = align;  // records follow each other and the segment's header
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto line = in.subspan(i * list_entry_bytes, list_entry_bytes);
    auto& entry = entries[i];
    entry.key = {get_number<std::uint64_t>(line, 0), get_number<std::uint64_t>(line, 8)};
    entry.offset = get_number<std::uint32_t>(line, 16);
    entry.payload_units = get_number<std::uint32_t>(line, 20);
    entry.record_units = get_number<std::uint32_t>(line, 24);
    const auto end = std::uint64_t{entry.offset} + entry.record_units;
    if (entry.offset < free_from || entry.offset % align != 0 || entry.payload_units == 0 ||
        entry.record_units % align != 0 || entry.payload_units >= entry.record_units ||
        end * unit_bytes > from.list_offset) {
      return fail(errc::invalid_argument, fmt::format("footer line {}: {} units at unit {}", i,
                                                      entry.record_units, entry.offset));
    }
    free_from = end;
  }
  return entries;
}

payload_digest::payload_digest() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
}

payload_digest::~payload_digest() {
  XXH3_freeState(state_);
}

void payload_digest::start(const superblock& of, std::uint64_t generation, std::uint32_t segment,
                           std::uint32_t offset) noexcept {
  // A payload that lies at another place, or from another life, does not pass.
  std::array<std::byte, 16> place{};
  put_number(std::span<std::byte>(place), 0, generation);
  put_number(std::span<std::byte>(place), 8, segment);
  put_number(std::span<std::byte>(place), 12, offset);
  XXH3_64bits_reset_withSeed(state_, seeded_sum(place, of.secret));
}

void payload_digest::add(std::span<const std::byte> bytes) noexcept {
  XXH3_64bits_update(state_, bytes.data(), bytes.size());
}

std::uint64_t payload_digest::value() const noexcept {
  return XXH3_64bits_digest(state_);
}

}  // namespace kvd::ssd
