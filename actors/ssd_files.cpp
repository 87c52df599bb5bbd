#include "actors/ssd_files.hpp"

#include <fmt/format.h>

#include "core/log.hpp"
#include "storage/open_file.hpp"

namespace kvd {

namespace {

std::vector<std::string> paths_of(const server_options& options) {
  const auto& given = options.ssd_cache_paths;
  if (given.size() == 1 && options.ssd_cache_shards == 1) return given;
  std::vector<std::string> paths;
  for (const auto& folder : given) {
    for (std::uint32_t shard = 0; shard < options.ssd_cache_shards; ++shard)
      paths.push_back(fmt::format("{}/shard-{:06}.dat", folder, paths.size()));
  }
  return paths;
}

durability level_of(const std::string& name) {
  if (name == "process") return durability::process;
  return name == "write" ? durability::write : durability::segment;
}

tl::unexpected<error> about(const std::string& path, const error& why) {
  return fail(why.code, fmt::format("--ssd-cache-path {}: {}", path, why.detail));
}

result<ssd_tier::opened_file> open_one(const std::string& path, std::uint64_t bytes,
                                       const server_options& options, random_source& random,
                                       const clock& time) {
  auto opened = open_block_file(
      path, {.bytes = bytes, .wipe = options.ssd_wipe, .free_floor = options.ssd_min_free_bytes});
  if (!opened) return about(path, opened.error());
  auto records =
      segment_log::open(*opened->file, {.level = level_of(options.ssd_sync)}, random, time);
  if (!records) return about(path, records.error());
  const auto& found = (*records)->recovered();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(found.took);
  log::info("ssd",
            "opened path={} bytes={} backend={} records={} clean={} segments_scanned={} took_ms={}",
            path, opened->file->bytes(), opened->file->backend(), found.records,
            found.clean || found.created, found.segments_scanned, took.count());
  if (!opened->why_not.empty()) log::warn("ssd", "path={}: {}", path, opened->why_not);
  return ssd_tier::opened_file{std::move(opened->file), std::move(*records),
                               std::move(opened->identity)};
}

}  // namespace

result<std::vector<ssd_tier::opened_file>>
open_ssd_files(const server_options& options, random_source& random, const clock& time) {
  const auto paths = paths_of(options);
  const auto bytes = options.ssd_cache_capacity_bytes / paths.size() / 4096 * 4096;
  std::vector<ssd_tier::opened_file> files;
  for (const auto& path : paths) {
    auto one = open_one(path, bytes, options, random, time);
    if (!one) return tl::unexpected(std::move(one.error()));
    files.push_back(std::move(*one));
  }
  return files;
}

}  // namespace kvd
