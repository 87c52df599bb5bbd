#include "storage/segment_format.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "storage/little_endian.hpp"

namespace kvd {

record_key key_of(const record_identity& of) noexcept {
  // A namespace and a hash could flow into each other, so their lengths are part of the seed text.
  std::array<char, 32 + limits::id_bytes_max + limits::hash_bytes_max> text{};
  assert(of.name_space.size() <= limits::id_bytes_max && of.hash.size() <= limits::hash_bytes_max);
  auto* at = text.data();
  const auto put = [&at](const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(at, from, bytes);
    at += bytes;
  };
  const auto name_bytes = static_cast<std::uint32_t>(of.name_space.size());
  put(&of.fingerprint.low, 8);
  put(&of.fingerprint.high, 8);
  put(&of.group, 4);
  put(&name_bytes, 4);
  put(of.name_space.data(), of.name_space.size());
  put(of.hash.data(), of.hash.size());
  const auto sum = XXH3_128bits(text.data(), static_cast<std::size_t>(at - text.data()));
  return {sum.low64, sum.high64};
}

namespace ssd {

static_assert(std::endian::native == std::endian::little, "key_of() is part of the format");

namespace {

constexpr std::string_view superblock_magic = "KVDSSD\r\n";
constexpr std::string_view segment_magic = "KVDSEGM\n";
constexpr std::string_view record_magic = "KVDRECD\n";
constexpr std::size_t magic_bytes = 8;
constexpr std::size_t sum_at = 8;    // the checksum's place in every structure
constexpr std::size_t body_at = 16;  // where what it covers begins

bool has_magic(std::span<const std::byte> in, std::string_view magic) {
  return in.size() >= magic.size() && std::memcmp(in.data(), magic.data(), magic.size()) == 0;
}

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

void begin_structure(std::span<std::byte> out, std::string_view magic) {
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(out.data(), magic.data(), magic_bytes);
}

void end_structure(std::span<std::byte> out, std::uint64_t seed) {
  put_number(out, sum_at, checksum(out.subspan(body_at), seed));
}

bool sum_matches(std::span<const std::byte> in, std::uint64_t seed) {
  return get_number<std::uint64_t>(in, sum_at) == checksum(in.subspan(body_at), seed);
}

tl::unexpected<error> unusable(std::string detail) {
  return fail(errc::invalid_argument, std::move(detail));
}

result<void> validate(const superblock& of) {
  if (!std::has_single_bit(of.alignment) || of.alignment < 512 || of.alignment > 4096) {
    return unusable(fmt::format("superblock: alignment {} is not 512 to 4096", of.alignment));
  }
  if (of.segment_bytes < segment_bytes_min || of.segment_bytes > segment_bytes_max ||
      of.segment_bytes % of.alignment != 0) {
    return unusable(fmt::format("superblock: segments of {} bytes", of.segment_bytes));
  }
  if (of.segment_count < 2) {
    return unusable(fmt::format("superblock: {} segments, at least 2", of.segment_count));
  }
  if (of.first_segment < superblock_bytes || of.first_segment > segment_bytes_max ||
      of.first_segment % of.alignment != 0) {
    return unusable(fmt::format("superblock: first segment at {}", of.first_segment));
  }
  return {};
}

}  // namespace

void encode_superblock(const superblock& from, std::span<std::byte> page) noexcept {
  assert(page.size() == superblock_bytes);
  begin_structure(page, superblock_magic);
  put_number(page, 16, version);
  put_number(page, 20, from.alignment);
  std::copy(from.uuid.begin(), from.uuid.end(), page.begin() + 24);
  put_number(page, 40, from.secret);
  put_number(page, 48, from.segment_bytes);
  put_number(page, 56, from.first_segment);
  put_number(page, 64, from.segment_count);
  put_number(page, 68, from.epoch);
  put_number(page, 72, std::uint32_t{from.clean ? 1U : 0U});
  end_structure(page, 0);
}

result<superblock> decode_superblock(std::span<const std::byte> page) {
  if (page.size() < superblock_bytes || !has_magic(page, superblock_magic)) {
    return unusable("not a kvd SSD file");
  }
  page = page.first(superblock_bytes);
  if (const auto found = get_number<std::uint32_t>(page, 16); found != version) {
    return unusable(
        fmt::format("SSD file of format version {}, this kvd reads version {}", found, version));
  }
  if (!sum_matches(page, 0)) return unusable("the superblock's checksum does not match");
  superblock got;
  got.alignment = get_number<std::uint32_t>(page, 20);
  std::copy_n(page.begin() + 24, got.uuid.size(), got.uuid.begin());
  got.secret = get_number<std::uint64_t>(page, 40);
  got.segment_bytes = get_number<std::uint64_t>(page, 48);
  got.first_segment = get_number<std::uint64_t>(page, 56);
  got.segment_count = get_number<std::uint32_t>(page, 64);
  got.epoch = get_number<std::uint32_t>(page, 68);
  got.clean = get_number<std::uint32_t>(page, 72) == 1;
  if (auto checked = validate(got); !checked) return tl::unexpected<error>(checked.error());
  return got;
}

void encode_segment_header(const superblock& of, const segment_header& from,
                           std::span<std::byte> out) noexcept {
  assert(out.size() == of.alignment);
  begin_structure(out, segment_magic);
  put_number(out, 16, version);
  put_number(out, 20, from.segment);
  put_number(out, 24, from.generation);
  std::copy(of.uuid.begin(), of.uuid.end(), out.begin() + 32);
  end_structure(out, of.secret);
}

result<segment_header> decode_segment_header(const superblock& of, std::uint32_t segment,
                                             std::span<const std::byte> in) {
  if (!has_magic(in, segment_magic)) return fail(errc::not_found, "no segment header");
  if (in.size() != of.alignment || !sum_matches(in, of.secret)) {
    return unusable("the segment header's checksum does not match");
  }
  const auto found = get_number<std::uint32_t>(in, 16);
  const segment_header got{get_number<std::uint32_t>(in, 20), get_number<std::uint64_t>(in, 24)};
  if (found != version) {
    return unusable(fmt::format("segment header of version {}, this kvd reads {}", found, version));
  }
  if (!std::equal(of.uuid.begin(), of.uuid.end(), in.begin() + 32)) {
    return unusable("segment header of another file");
  }
  if (got.segment != segment) {
    return unusable(fmt::format("segment header of segment {}", got.segment));
  }
  // Later than the last opening: not written by an owner of this superblock.
  if (got.generation == 0 || (got.generation >> 32) > of.epoch) {
    return unusable(
        fmt::format("segment header of generation {:#x}, epoch {}", got.generation, of.epoch));
  }
  return got;
}

std::uint64_t record_header_bytes(const record_identity& identity,
                                  std::uint32_t alignment) noexcept {
  return round_up(record_fields_bytes + identity.name_space.size() + identity.hash.size(),
                  alignment);
}

void encode_record_header(const superblock& of, const record_header& from,
                          std::span<std::byte> out) noexcept {
  const auto& identity = from.identity;
  assert(out.size() == record_header_bytes(identity, of.alignment));
  begin_structure(out, record_magic);
  put_number(out, 16, from.generation);
  put_number(out, 24, from.payload_bytes);
  put_number(out, 32, from.payload_checksum);
  put_number(out, 40, identity.fingerprint.low);
  put_number(out, 48, identity.fingerprint.high);
  put_number(out, 56, static_cast<std::uint32_t>(out.size()));
  put_number(out, 60, from.segment);
  put_number(out, 64, from.offset);
  put_number(out, 68, identity.group);
  put_number(out, 72, static_cast<std::uint16_t>(identity.name_space.size()));
  put_number(out, 74, static_cast<std::uint16_t>(identity.hash.size()));
  auto rest = out.subspan(record_fields_bytes);
  std::memcpy(rest.data(), identity.name_space.data(), identity.name_space.size());
  rest = rest.subspan(identity.name_space.size());
  std::memcpy(rest.data(), identity.hash.data(), identity.hash.size());
  end_structure(out, of.secret ^ from.generation);
}

bool looks_like_record(std::span<const std::byte> in) noexcept {
  return has_magic(in, record_magic);
}

result<record_header> decode_record_header(const superblock& of, const segment_header& in_segment,
                                           std::uint32_t offset, std::span<const std::byte> in) {
  if (in.size() < record_fields_bytes || !has_magic(in, record_magic)) {
    return fail(errc::not_found, "no record header");
  }
  const auto header_bytes = get_number<std::uint32_t>(in, 56);
  if (header_bytes < record_fields_bytes || header_bytes > in.size() ||
      header_bytes > record_header_bytes_max(of.alignment) || header_bytes % of.alignment != 0) {
    return unusable(fmt::format("record header of {} bytes", header_bytes));
  }
  in = in.first(header_bytes);
  if (!sum_matches(in, of.secret ^ in_segment.generation)) {
    return unusable("the record header's checksum does not match");
  }
  record_header got;
  got.generation = get_number<std::uint64_t>(in, 16);
  got.payload_bytes = get_number<std::uint64_t>(in, 24);
  got.payload_checksum = get_number<std::uint64_t>(in, 32);
  got.identity.fingerprint = {get_number<std::uint64_t>(in, 40), get_number<std::uint64_t>(in, 48)};
  got.segment = get_number<std::uint32_t>(in, 60);
  got.offset = get_number<std::uint32_t>(in, 64);
  got.identity.group = get_number<std::uint32_t>(in, 68);
  const std::size_t name_bytes = get_number<std::uint16_t>(in, 72);
  const std::size_t hash_bytes = get_number<std::uint16_t>(in, 74);
  if (got.generation != in_segment.generation || got.segment != in_segment.segment ||
      got.offset != offset) {
    return unusable(fmt::format("record of segment {} unit {} generation {:#x}", got.segment,
                                got.offset, got.generation));
  }
  if (name_bytes > limits::id_bytes_max || hash_bytes > limits::hash_bytes_max || hash_bytes == 0 ||
      round_up(record_fields_bytes + name_bytes + hash_bytes, of.alignment) != header_bytes) {
    return unusable(fmt::format("record header with a namespace of {} and a hash of {} bytes",
                                name_bytes, hash_bytes));
  }
  const auto room = of.segment_bytes - std::min(of.segment_bytes, offset * unit_bytes);
  if (got.payload_bytes == 0 || got.payload_bytes % unit_bytes != 0 || header_bytes > room ||
      got.payload_bytes > room - header_bytes) {
    return unusable(fmt::format("record with a payload of {} bytes", got.payload_bytes));
  }
  const auto* text = reinterpret_cast<const char*>(in.data()) + record_fields_bytes;
  got.identity.name_space = {text, name_bytes};
  got.identity.hash = {text + name_bytes, hash_bytes};
  return got;
}

}  // namespace ssd
}  // namespace kvd
