// Starting a log on what its file holds, and leaving it in order.

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "storage/io_batch.hpp"
#include "storage/segment_log_parts.hpp"
#include "storage/segment_survey.hpp"

namespace kvd {

namespace {

constexpr std::uint64_t default_segment_min = 4 << 20;
constexpr std::uint64_t default_segment_max = 256 << 20;
constexpr std::uint64_t segments_wished = 64;
constexpr std::uint64_t first_segment_max = 1 << 20;  // begins on a round number, for tools

result<std::uint64_t> segment_bytes_for(std::uint64_t file_bytes, std::uint64_t asked) {
  if (asked == 0) {
    const auto wished = std::bit_floor(std::max<std::uint64_t>(1, file_bytes / segments_wished));
    return std::clamp(wished, default_segment_min, default_segment_max);
  }
  if (!std::has_single_bit(asked) || asked < ssd::segment_bytes_min ||
      asked > ssd::segment_bytes_max) {
    return fail(errc::invalid_argument,
                fmt::format("segments of {} bytes: a power of two from {} to {} is possible", asked,
                            ssd::segment_bytes_min, ssd::segment_bytes_max));
  }
  return asked;
}

}  // namespace

result<std::unique_ptr<segment_log>> segment_log::open(block_file& file, const log_options& how,
                                                       random_source& random, const clock& time) {
  std::unique_ptr<segment_log> log(new segment_log(file, how, random));
  if (auto started = log->start(random, time); !started) {
    return tl::unexpected<error>(started.error());
  }
  return log;
}

result<void> segment_log::start(random_source& random, const clock& time) {
  const auto began = time.now();
  auto found = read_superblock(file_);
  if (!found) return tl::unexpected<error>(found.error());
  super_ = found->of;
  recovered_.created = found->blank;
  if (found->blank) {
    if (auto made = make(random); !made) return made;
  }
  segments_ = std::vector<segment_state>(super_.segment_count);
  if (!found->blank) {
    recovered_.clean = super_.clean;
    if (auto read = recover(); !read) return read;
  } else {
    for (std::uint32_t i = 0; i < super_.segment_count; ++i)
      free_.push_back(i);
  }
  if (super_.epoch == std::numeric_limits<std::uint32_t>::max()) {
    return fail(errc::invalid_argument,
                "SSD file was opened 2^32 times: it has no generation left");
  }
  // Before anything is appended. The epoch makes every generation new, those included whose header
  // a power loss took and whose records it left.
  ++super_.epoch;
  super_.clean = false;
  generation_ = std::uint64_t{super_.epoch} << 32;
  if (auto written = write_superblock(file_, super_); !written) return written;
  segments_free_.store(free_.size() + failed_.size());
  recovered_.records = index_.size();
  recovered_.took = time.now() - began;
  return {};
}

result<void> segment_log::make(random_source& random) {
  const auto bytes = segment_bytes_for(file_.bytes(), how_.segment_bytes);
  if (!bytes) return tl::unexpected<error>(bytes.error());
  super_ = {};
  super_.alignment = file_.alignment();
  super_.segment_bytes = *bytes;
  super_.first_segment = std::min(first_segment_max, *bytes);
  const auto needed = super_.first_segment + 2 * *bytes;
  if (file_.bytes() < needed) {
    return fail(errc::invalid_argument,
                fmt::format("SSD file of {} bytes is too small: two segments of {} need {}",
                            file_.bytes(), *bytes, needed));
  }
  const auto count = (file_.bytes() - super_.first_segment) / *bytes;
  super_.segment_count = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(count, std::numeric_limits<std::uint32_t>::max() - 1));
  random.fill(super_.uuid);
  super_.secret = random.next();
  return {};
}

result<void> segment_log::recover() {
  segment_survey survey(file_, super_);
  auto found = survey.read_ends();
  // Oldest first: of two records under one key the later one stays, and the hand begins right.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.header.generation < b.header.generation;
  });
  for (const auto& segment : found) {
    switch (segment.what) {
    case found_segment::kind::free: free_.push_back(segment.number); break;
    case found_segment::kind::unreadable:
      failed_.push_back(segment.number);
      ++recovered_.segments_unreadable;
      break;
    case found_segment::kind::listed:
      segments_[segment.number].generation = segment.header.generation;
      if (const auto entries = survey.read_list(segment)) {
        ++recovered_.segments_listed;
        take_over(segment.number, *entries, true);
        break;
      }
      [[fallthrough]];
    case found_segment::kind::unlisted:
      segments_[segment.number].generation = segment.header.generation;
      const auto scanned = survey.scan(segment);
      ++recovered_.segments_scanned;
      recovered_.records_torn += scanned.torn;
      take_over(segment.number, scanned.records, false);
      break;
    }
  }
  recovered_.bytes_read = survey.bytes_read();
  return {};
}

void segment_log::take_over(std::uint32_t number, std::span<const ssd::list_entry> entries,
                            bool listed) {
  auto& segment = segments_[number];
  segment.listed = listed;
  segment.entries.assign(entries.begin(), entries.end());
  list_bytes_.fetch_add(entries.size_bytes(), std::memory_order_relaxed);
  for (const auto& entry : entries) {
    index_.insert(entry.key, {number, entry.offset, entry.payload_units, entry.record_units});
  }
  (entries.empty() ? free_ : full_).push_back(number);
}

// What was scanned at the start, and what lost its footer to an error: scanned once, not each time.
// Free ones too, when their header is on the file and no record is.
result<void> segment_log::list_unlisted() {
  segment_survey survey(file_, super_);
  for (std::uint32_t number = 0; number < super_.segment_count; ++number) {
    auto& segment = segments_[number];
    const bool broken = std::find(failed_.begin(), failed_.end(), number) != failed_.end();
    if (segment.generation == 0 || segment.listed || broken) continue;
    found_segment of;
    of.number = number;
    of.header = {number, segment.generation};
    if (auto written = survey.write_list(of, segment.entries); !written) return written;
    segment.listed = true;
  }
  return {};
}

result<void> segment_log::close() noexcept {
  assert(busy_ == 0);
  settle();
  if (open_ != nullptr) close_segment(*open_);
  settle();
  if (auto listed = list_unlisted(); !listed) return listed;
  io_batch batch(file_);
  batch.sync();
  if (auto synced = batch.wait("sync"); !synced) return synced;
  super_.clean = true;
  return write_superblock(file_, super_);
}

}  // namespace kvd
