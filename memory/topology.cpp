#include "memory/topology.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>

#include "core/limits.hpp"

namespace kvd {

namespace {

// One (layer, tp rank) of the instance, with everybody who registered it.
struct cell_draft {
  const layer_layout* layer = nullptr;
  std::uint32_t tp_rank = 0;
  std::uint32_t pp_rank = 0;
  std::set<std::int32_t> owners;
};

using cell_key = std::pair<std::string, std::uint32_t>;  // layer name, tp rank
using cell_map = std::map<cell_key, cell_draft>;

error layer_error(const layer_layout& layer, std::string_view what) {
  return {errc::invalid_argument, fmt::format("layer {}: {}", layer.name, what)};
}

bool same_shape(const layer_layout& a, const layer_layout& b) {
  return a.segment_bytes == b.segment_bytes && a.segments == b.segments && a.split() == b.split();
}

result<cell_map> collect_cells(std::span<const worker_layout> workers) {
  cell_map cells;
  std::map<std::string, const layer_layout*> first_seen;
  for (const auto& worker : workers) {
    for (const auto& layer : worker.layers) {
      const auto [seen, is_new] = first_seen.try_emplace(layer.name, &layer);
      if (!is_new && !same_shape(*seen->second, layer)) {
        return fail(errc::topology_mismatch,
                    fmt::format("layer {} has {} bytes x {} segments on device {} and {} x {} "
                                "on another worker",
                                layer.name, layer.segment_bytes, layer.segments, worker.device_id,
                                seen->second->segment_bytes, seen->second->segments));
      }
      if (!is_new && seen->second->group != layer.group) {
        return fail(errc::topology_mismatch,
                    fmt::format("layer {} is in group {} on device {} and in group {} elsewhere",
                                layer.name, layer.group, worker.device_id, seen->second->group));
      }
      auto& cell = cells[{layer.name, worker.tp_rank}];
      if (!cell.owners.empty() && cell.pp_rank != worker.pp_rank) {
        return fail(errc::topology_mismatch,
                    fmt::format("layer {} tp_rank {} is registered by pp_rank {} and pp_rank {}",
                                layer.name, worker.tp_rank, cell.pp_rank, worker.pp_rank));
      }
      cell.layer = &layer;
      cell.tp_rank = worker.tp_rank;
      cell.pp_rank = worker.pp_rank;
      cell.owners.insert(worker.device_id);
    }
  }
  return cells;
}

// Every layer must come from every tensor-parallel rank, and groups must be 0..N-1.
result<std::uint32_t> check_grid(const cell_map& cells, std::uint32_t tp_size) {
  std::set<std::uint32_t> groups;
  for (auto at = cells.begin(); at != cells.end();) {
    const auto& name = at->first.first;
    for (std::uint32_t rank = 0; rank < tp_size; ++rank, ++at) {
      if (at == cells.end() || at->first.first != name || at->first.second != rank) {
        return fail(
            errc::topology_mismatch,
            fmt::format("layer {} has no worker with tp_rank {} of {}", name, rank, tp_size));
      }
      groups.insert(at->second.layer->group);
    }
  }
  const auto count = static_cast<std::uint32_t>(groups.size());
  if (count > limits::layer_groups_max || *groups.rbegin() != count - 1) {
    return fail(errc::invalid_argument,
                fmt::format("layer_group_ids must be 0..N-1 without gaps, N at most {}; got {} "
                            "groups up to {}",
                            limits::layer_groups_max, count, *groups.rbegin()));
  }
  return count;
}

// Page-first: the sets of layers that workers registered must partition the layers.
result<void> check_shards(std::span<const worker_layout> workers) {
  std::map<std::string, std::set<std::string>> shard_of_layer;
  for (const auto& worker : workers) {
    std::set<std::string> shard;
    for (const auto& layer : worker.layers)
      shard.insert(layer.name);
    for (const auto& layer : worker.layers) {
      const auto [seen, is_new] = shard_of_layer.try_emplace(layer.name, shard);
      if (!is_new && seen->second != shard) {
        return fail(
            errc::topology_mismatch,
            fmt::format("page_first: layer {} is in two different sets of layers", layer.name));
      }
    }
  }
  return {};
}

class fingerprinter {
public:
  void number(std::uint64_t value) { text_ += fmt::format("{};", value); }
  void name(const std::string& value) { text_ += fmt::format("{}:{};", value.size(), value); }
  layout_fingerprint finish() const {
    const auto hash = XXH3_128bits(text_.data(), text_.size());
    return {hash.low64, hash.high64};
  }

private:
  std::string text_;
};

std::uint64_t align_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

result<void> validate(const layer_layout& layer, std::uint64_t tensor_bytes) {
  const auto refuse = [&](std::string_view what) -> result<void> {
    return tl::unexpected<error>(layer_error(layer, what));
  };
  if (layer.name.empty()) return refuse("the name is empty");
  if (layer.name.size() > limits::id_bytes_max) {
    return refuse(
        fmt::format("the name has {} bytes, limit {}", layer.name.size(), limits::id_bytes_max));
  }
  if (layer.num_blocks == 0) return refuse("num_blocks is 0");
  if (layer.segment_bytes == 0) return refuse("bytes_per_block is 0");
  if (layer.segments == 0) return refuse("segments is 0");
  if (layer.segments > 1 && layer.kv_stride < layer.segment_bytes) {
    return refuse(fmt::format("kv_stride_bytes {} is less than bytes_per_block {} with {} segments",
                              layer.kv_stride, layer.segment_bytes, layer.segments));
  }
  if (layer.segments > 2) {
    return refuse(fmt::format("{} segments; at most 2 are known", layer.segments));
  }
  std::uint64_t last = 0;  // one past the last byte that block num_blocks - 1 touches
  if (__builtin_mul_overflow(layer.segment_bytes, std::uint64_t{layer.segments}, &last) ||
      __builtin_mul_overflow(layer.num_blocks, layer.block_stride(), &last)) {
    return refuse("num_blocks x bytes_per_block overflows");
  }
  if (layer.split()) {
    if (layer.kv_stride < last) {
      return refuse(
          fmt::format("K and V regions overlap: kv_stride_bytes {} is less than {} blocks "
                      "of {} bytes",
                      layer.kv_stride, layer.num_blocks, layer.segment_bytes));
    }
    if (__builtin_add_overflow(last, layer.kv_stride, &last)) return refuse("addresses overflow");
  }
  if (last > tensor_bytes) {
    return refuse(fmt::format("its blocks end at byte {}, beyond its {} bytes of memory", last,
                              tensor_bytes));
  }
  return {};
}

// What seal() builds up, cell by cell.
struct topology::draft {
  using part_key = std::set<std::int32_t>;  // owners; a page-first shard has one set of owners too
  std::vector<group_layout> groups;
  std::vector<std::map<part_key, std::uint32_t>> parts;  // a map a group
  std::map<cell_key, cell_place> placed;
  std::vector<fingerprinter> prints;
  std::vector<std::set<std::string>> names;

  draft(std::uint32_t count, bool page_first)
      : groups(count), parts(count), prints(count), names(count) {
    for (auto& print : prints)
      print.number(page_first ? 1 : 0);
  }

  void place(const cell_key& key, const part_key& owners, const layer_layout& layer) {
    auto& group = groups[layer.group];
    const auto next_part = static_cast<std::uint32_t>(group.parts.size());
    const auto [at, is_new] = parts[layer.group].try_emplace(owners, next_part);
    if (is_new) group.parts.emplace_back();
    auto& part = group.parts[at->second];
    placed[key] = {layer.group, at->second, part.cells, part.bytes};
    part.bytes = align_up(part.bytes + layer.block_bytes(), cell_alignment);
    ++part.cells;
    names[layer.group].insert(layer.name);
    auto& print = prints[layer.group];
    print.name(layer.name);
    print.number(key.second);
    print.number(layer.segment_bytes);
    print.number(layer.segments);
    print.number(at->second);
  }
};

result<topology> topology::seal(options how, std::span<const worker_layout> workers) {
  auto cells = collect_cells(workers);
  if (!cells) return tl::unexpected(cells.error());
  if (cells->empty()) return fail(errc::invalid_argument, "no layers are registered");
  const auto group_count = check_grid(*cells, how.tp_size);
  if (!group_count) return tl::unexpected(group_count.error());
  if (how.page_first && *group_count != 1) {
    return fail(errc::invalid_argument,
                fmt::format("page_first needs exactly one layer group, got {}", *group_count));
  }
  if (how.page_first) {
    if (auto shards = check_shards(workers); !shards) return tl::unexpected(shards.error());
  }
  draft building(*group_count, how.page_first);
  for (const auto& [key, cell] : *cells)
    building.place(key, cell.owners, *cell.layer);

  topology sealed;
  for (std::uint32_t g = 0; g < *group_count; ++g) {
    auto& group = building.groups[g];
    group.fingerprint = building.prints[g].finish();
    for (const auto& part : group.parts)
      group.block_bytes += part.bytes;
    const auto slots = how.page_first ? group.parts.size() : building.names[g].size() * how.tp_size;
    if (slots > limits::slots_per_block_max) {
      return fail(errc::limit_exceeded, fmt::format("group {} has {} slots a block, limit {}", g,
                                                    slots, limits::slots_per_block_max));
    }
    group.slots = static_cast<std::uint32_t>(slots);
  }
  sealed.groups_ = std::move(building.groups);
  for (const auto& worker : workers) {
    auto& places = sealed.places_[worker.device_id];
    for (const auto& layer : worker.layers) {
      places.push_back(building.placed.at({layer.name, worker.tp_rank}));
    }
  }
  return sealed;
}

}  // namespace kvd
