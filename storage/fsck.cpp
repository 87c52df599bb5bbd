#include "storage/fsck.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "storage/io_batch.hpp"
#include "storage/segment_survey.hpp"

namespace kvd {

namespace {

constexpr std::size_t findings_max = 100;

class checker {
public:
  checker(block_file& file, const ssd::superblock& of, bool repair, fsck_report& report)
      : file_(file), survey_(file, of), repair_(repair), report_(report) {}

  void check_all() {
    auto found = survey_.read_ends();
    // As a start does it: of two records under one key the later one counts.
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.header.generation < b.header.generation;
    });
    for (const auto& segment : found)
      check(segment);
    report_.records = index_.size();
    report_.record_bytes = index_.record_units() * ssd::unit_bytes;
    if (!repair_) return;
    io_batch batch(file_);
    batch.sync();
    if (auto synced = batch.wait("sync"); !synced) {
      failed_ = true;
      note(synced.error().detail);
    }
    report_.repaired = !failed_;
  }

  void note(std::string what) {
    if (report_.findings.size() < findings_max) {
      report_.findings.push_back(std::move(what));
    } else {
      ++report_.findings_left_out;
    }
  }

private:
  void check(const found_segment& segment) {
    if (!segment.wrong.empty()) {
      ++report_.segments_broken;
      note(fmt::format("segment {}: {}", segment.number, segment.wrong));
    }
    if (segment.what == found_segment::kind::free) ++report_.segments_free;
    if (segment.what == found_segment::kind::listed) return check_listed(segment);
    if (segment.what == found_segment::kind::unlisted) scan(segment);
  }

  void check_listed(const found_segment& segment) {
    const auto entries = survey_.read_list(segment);
    if (!entries) {
      ++report_.segments_broken;
      note(fmt::format("segment {}: {}", segment.number, entries.error().detail));
      return scan(segment);
    }
    ++report_.segments_listed;
    std::vector<ssd::list_entry> good;
    for (const auto& entry : *entries) {
      const auto record = survey_.check_record(segment, entry.offset * ssd::unit_bytes);
      if (record && *record == entry) {
        good.push_back(entry);
        continue;
      }
      ++report_.records_corrupt;
      note(fmt::format("segment {}, record at unit {}: {}", segment.number, entry.offset,
                       record ? "the footer tells of another one" : record.error().detail));
    }
    take(segment, good);
    if (good.size() < entries->size()) list(segment, good);
  }

  void scan(const found_segment& segment) {
    ++report_.segments_scanned;
    const auto found = survey_.scan(segment);
    report_.records_torn += found.torn;
    take(segment, found.records);
    if (!found.wrong.empty()) {
      ++report_.segments_broken;
      note(fmt::format("segment {}: {}", segment.number, found.wrong));
      return;  // what the file did not give today may be there tomorrow
    }
    list(segment, found.records);
  }

  void take(const found_segment& segment, const std::vector<ssd::list_entry>& records) {
    for (const auto& entry : records) {
      if (index_.contains(entry.key)) ++report_.records_stale;
      index_.insert(entry.key,
                    {segment.number, entry.offset, entry.payload_units, entry.record_units});
    }
  }

  void list(const found_segment& segment, const std::vector<ssd::list_entry>& records) {
    if (!repair_) return;
    if (auto written = survey_.write_list(segment, records); !written) {
      failed_ = true;
      note(fmt::format("segment {}: {}", segment.number, written.error().detail));
      return;
    }
    ++report_.footers_written;
  }

  block_file& file_;
  segment_survey survey_;
  bool repair_;
  bool failed_ = false;
  fsck_report& report_;
  ssd_index index_;
};

}  // namespace

fsck_report fsck(block_file& file, bool repair) {
  fsck_report report;
  const auto found = read_superblock(file);
  if (!found) {
    report.findings.push_back(found.error().detail);
    return report;
  }
  report.valid = true;
  report.blank = found->blank;
  if (found->blank) {
    report.findings.emplace_back("blank: the first start makes the log");
    return report;
  }
  report.clean = found->of.clean;
  report.segments = found->of.segment_count;
  checker(file, found->of, repair, report).check_all();
  return report;
}

}  // namespace kvd
