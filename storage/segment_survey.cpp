#include "storage/segment_survey.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "storage/io_batch.hpp"

namespace kvd {

namespace {

// Big enough for a disk's full speed, small enough to keep.
constexpr std::uint64_t window_size = 1 << 20;
// Segments whose ends are read at once: two requests each.
constexpr std::uint32_t segments_at_once = 64;

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

result<found_superblock> read_superblock(block_file& file) {
  if (file.bytes() < ssd::superblock_bytes) {
    return fail(errc::invalid_argument,
                fmt::format("SSD file of {} bytes, the superblock alone has {}", file.bytes(),
                            ssd::superblock_bytes));
  }
  const aligned_bytes page_bytes(ssd::superblock_bytes);
  const auto page = page_bytes.span();
  io_batch batch(file);
  batch.read(0, page);
  if (auto done = batch.wait("superblock"); !done) return tl::unexpected<error>(done.error());
  if (all_zero(page)) {
    // Other formats begin with zeros as well (disk images do), hence a look beyond the page.
    const aligned_bytes head(std::min(file.bytes() / page.size() * page.size(), window_size));
    batch.read(0, head.span());
    if (auto done = batch.wait("superblock"); !done) return tl::unexpected<error>(done.error());
    if (!all_zero(head.span())) {
      return fail(errc::invalid_argument, "not a kvd SSD file: it begins with zeros, but has "
                                          "other content in its first MiB");
    }
    return found_superblock{true, {}};
  }
  auto got = ssd::decode_superblock(page);
  if (!got) return tl::unexpected<error>(got.error());
  const auto end = got->offset_of(got->segment_count);
  if (end > file.bytes()) {
    return fail(
        errc::invalid_argument,
        fmt::format("SSD file of {} bytes was made with {}: it was cut off", file.bytes(), end));
  }
  if (file.alignment() > got->alignment) {
    return fail(errc::invalid_argument,
                fmt::format("SSD file was made for requests of {} bytes, this disk wants {}",
                            got->alignment, file.alignment()));
  }
  return found_superblock{false, *got};
}

result<void> write_superblock(block_file& file, const ssd::superblock& of) {
  const aligned_bytes page(ssd::superblock_bytes);
  ssd::encode_superblock(of, page.span());
  io_batch batch(file);
  batch.write(0, page.span());
  if (auto done = batch.wait("superblock"); !done) return done;
  batch.sync();
  return batch.wait("sync of the superblock");
}

segment_survey::segment_survey(block_file& file, const ssd::superblock& of)
    : file_(file), of_(of), window_(window_size) {}

void segment_survey::judge(found_segment& of, std::span<const std::byte> head,
                           std::span<const std::byte> tail) {
  using kind = found_segment::kind;
  auto header = ssd::decode_segment_header(of_, of.number, head);
  if (!header) {
    if (header.error().code != errc::not_found) of.wrong = header.error().detail;
    return;
  }
  of.header = *header;
  of.what = kind::unlisted;
  auto footer = ssd::decode_trailer(of_, of.header, tail);
  if (footer) {
    of.footer = *footer;
    of.what = kind::listed;
  } else if (footer.error().code != errc::not_found) {
    of.wrong = footer.error().detail;
  }
}

std::vector<found_segment> segment_survey::read_ends() {
  std::vector<found_segment> found(of_.segment_count);
  const auto unit = of_.alignment;
  const aligned_bytes ends(std::size_t{2} * segments_at_once * unit);
  const auto end_of = [&](std::uint32_t i) {
    return ends.span().subspan(std::size_t{i} * unit, unit);
  };
  for (std::uint32_t first = 0; first < of_.segment_count; first += segments_at_once) {
    const auto count = std::min(segments_at_once, of_.segment_count - first);
    io_batch batch(file_);
    for (std::uint32_t i = 0; i < count; ++i) {
      batch.read(of_.offset_of(first + i), end_of(2 * i));
      batch.read(of_.offset_of(first + i + 1) - unit, end_of(2 * i + 1));
    }
    const auto errors = batch.wait_each();
    bytes_read_ += batch.bytes_read();
    for (std::uint32_t i = 0; i < count; ++i) {
      auto& segment = found[first + i];
      segment.number = first + i;
      if (const auto error = errors[2 * i] != 0 ? errors[2 * i] : errors[2 * i + 1]; error != 0) {
        segment.what = found_segment::kind::unreadable;
        segment.wrong = errno_text(error);
        continue;
      }
      judge(segment, end_of(2 * i), end_of(2 * i + 1));
    }
  }
  return found;
}

result<std::vector<ssd::list_entry>> segment_survey::read_list(const found_segment& of) {
  const auto bytes = of_.segment_bytes - of_.alignment - of.footer.list_offset;
  const aligned_bytes list(bytes);
  if (bytes > 0) {
    io_batch batch(file_);
    batch.read(of_.offset_of(of.number) + of.footer.list_offset, list.span());
    bytes_read_ += bytes;
    if (auto done = batch.wait("footer"); !done) return tl::unexpected<error>(done.error());
  }
  return ssd::decode_list(of_, of.header, of.footer, list.span());
}

result<void> segment_survey::write_list(const found_segment& of,
                                        std::span<const ssd::list_entry> entries) {
  const aligned_bytes footer(ssd::footer_bytes(entries.size(), of_.alignment));
  ssd::encode_footer(of_, of.header, entries, footer.span());
  io_batch batch(file_);
  batch.write(of_.offset_of(of.number + 1) - footer.size(), footer.span());
  return batch.wait("footer");
}

result<std::span<const std::byte>>
segment_survey::view(const found_segment& of, std::uint64_t offset, std::uint64_t wanted) {
  const auto at = of_.offset_of(of.number) + offset;
  if (at < window_at_ || at + wanted > window_at_ + window_bytes_) {
    window_bytes_ = 0;
    const auto bytes = std::min(window_size, of_.segment_bytes - offset);
    io_batch batch(file_);
    batch.read(at, window_.span().first(bytes));
    bytes_read_ += bytes;
    if (auto done = batch.wait("segment"); !done) return tl::unexpected<error>(done.error());
    window_at_ = at;
    window_bytes_ = bytes;
  }
  const auto end = std::min(window_at_ + window_bytes_, of_.offset_of(of.number + 1));
  return std::span<const std::byte>(window_.data() + (at - window_at_), end - at);
}

result<ssd::list_entry> segment_survey::check_record(const found_segment& of,
                                                     std::uint64_t offset) {
  const auto wanted =
      std::min(ssd::record_header_bytes_max(of_.alignment), of_.segment_bytes - offset);
  auto bytes = view(of, offset, wanted);
  if (!bytes) return tl::unexpected<error>(bytes.error());
  const auto unit = static_cast<std::uint32_t>(offset / ssd::unit_bytes);
  if (!ssd::looks_like_record(*bytes)) return fail(errc::not_found, "no record header");
  auto header = ssd::decode_record_header(of_, of.header, unit, *bytes);
  if (!header) return tl::unexpected<error>(header.error());
  const auto header_bytes = ssd::record_header_bytes(header->identity, of_.alignment);
  const auto record_bytes = ssd::record_bytes(*header, of_.alignment);
  ssd::list_entry entry{key_of(header->identity), unit,
                        static_cast<std::uint32_t>(header->payload_bytes / ssd::unit_bytes),
                        static_cast<std::uint32_t>(record_bytes / ssd::unit_bytes)};
  const auto left_from = header->payload_bytes;
  const auto expected = header->payload_checksum;
  header->identity = {};  // it points into the window, which moves now
  digest_.start(of_, of.header.generation, of.number, unit);
  for (std::uint64_t done = 0; done < left_from;) {
    bytes = view(of, offset + header_bytes + done, ssd::unit_bytes);
    if (!bytes) return tl::unexpected<error>(bytes.error());
    const auto part = bytes->first(std::min<std::uint64_t>(bytes->size(), left_from - done));
    digest_.add(part);
    done += part.size();
  }
  if (digest_.value() != expected) {
    return fail(errc::invalid_argument, "the payload's checksum does not match");
  }
  return entry;
}

segment_survey::scanned segment_survey::scan(const found_segment& of) {
  scanned found;
  for (std::uint64_t offset = of_.alignment; offset < of_.segment_bytes;) {
    const auto record = check_record(of, offset);
    if (record) {
      found.records.push_back(*record);
      offset += record->record_units * ssd::unit_bytes;
      continue;
    }
    if (record.error().code == errc::io) {
      found.wrong = record.error().detail;
      return found;
    }
    if (record.error().code != errc::not_found) ++found.torn;
    offset += of_.alignment;
  }
  return found;
}

}  // namespace kvd
