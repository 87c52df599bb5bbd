#include "cli/fsck.hpp"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <system_error>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/bench.hpp"
#include "core/options.hpp"
#include "core/units.hpp"
#include "storage/fsck.hpp"
#include "storage/open_file.hpp"

namespace kvd {

namespace {

constexpr std::string_view fsck_name = "fsck";
constexpr std::string_view fsck_purpose =
    "kvd fsck PATH...: reads every record of these SSD files and checks it. Changes nothing\n"
    "unless it is told to. The server that uses a file must not run.";

const option fsck_options[] = {
    {.name = "repair",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "What to do",
     .help = "Write the lists that are missing or wrong, and leave broken records out of them."},
    {.name = "json",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "One JSON document a file instead of text."},
    {.name = "help",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "Print this."},
};

void print_report(const std::string& path, const fsck_report& found) {
  fmt::print("{}: {}\n", path,
             found.blank ? "blank"
             : found.sound()
                 ? (found.clean ? "sound, closed by its server" : "sound, as a kill left it")
                 : "NOT sound");
  fmt::print("  {} segments: {} listed, {} scanned, {} free, {} broken\n", found.segments,
             found.segments_listed, found.segments_scanned, found.segments_free,
             found.segments_broken);
  fmt::print("  {} records in {}; {} older copies, {} corrupt, {} unfinished\n", found.records,
             format_bytes(found.record_bytes), found.records_stale, found.records_corrupt,
             found.records_torn);
  for (const auto& finding : found.findings)
    fmt::print("  - {}\n", finding);
  if (found.findings_left_out > 0) fmt::print("  - and {} more\n", found.findings_left_out);
  if (found.repaired) fmt::print("  repaired: {} lists written\n", found.footers_written);
}

void print_json(const std::string& path, const fsck_report& found) {
  boost::json::array findings;
  for (const auto& finding : found.findings)
    findings.emplace_back(finding);
  const boost::json::object document{{"path", path},
                                     {"sound", found.sound()},
                                     {"blank", found.blank},
                                     {"clean", found.clean},
                                     {"segments", found.segments},
                                     {"segments_listed", found.segments_listed},
                                     {"segments_scanned", found.segments_scanned},
                                     {"segments_free", found.segments_free},
                                     {"segments_broken", found.segments_broken},
                                     {"records", found.records},
                                     {"record_bytes", found.record_bytes},
                                     {"records_stale", found.records_stale},
                                     {"records_corrupt", found.records_corrupt},
                                     {"records_torn", found.records_torn},
                                     {"footers_written", found.footers_written},
                                     {"repaired", found.repaired},
                                     {"findings", std::move(findings)},
                                     {"findings_left_out", found.findings_left_out}};
  fmt::print("{}\n", boost::json::serialize(document));
}

bool check_file(const std::string& path, bool repair, bool as_json) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    fmt::print(stderr, "kvd fsck: {}: no such file\n", path);
    return false;
  }
  const auto opened = open_block_file(path, {});
  if (!opened) {
    fmt::print(stderr, "kvd fsck: {}\n", opened.error().detail);
    return false;
  }
  const auto found = fsck(*opened->file, repair);
  if (as_json) {
    print_json(path, found);
  } else {
    print_report(path, found);
  }
  return found.sound() || (repair && found.repaired);
}

}  // namespace

int fsck_command(std::span<const std::string> args) {
  try {
    std::vector<std::string> paths, flags;
    for (const auto& word : args)
      (word.starts_with("--") ? flags : paths).push_back(word);
    const auto given = parse_bench_options(fsck_name, fsck_purpose, fsck_options, flags);
    if (!given.values) return given.status;
    if (paths.empty()) {
      fmt::print(stderr, "kvd fsck: name the files to check: kvd fsck PATH...\n");
      return bench_usage;
    }
    bool sound = true;
    for (const auto& path : paths)
      sound =
          check_file(path, given.values->get<bool>("repair"), given.values->get<bool>("json")) &&
          sound;
    return sound ? bench_ok : bench_failed;
  } catch (const std::exception& thrown) {
    return bench_error(fsck_name, {errc::internal, thrown.what()});
  }
}

}  // namespace kvd
