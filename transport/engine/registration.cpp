#include "transport/engine/registration.hpp"

#include <fmt/format.h>

#include "core/limits.hpp"

namespace kvd {

namespace {

using request_type = pegaflow::RegisterContextRequest;

result<void> refuse(std::string what) {
  return fail(errc::invalid_argument, std::move(what));
}

result<void> check_id(std::string_view what, const std::string& value) {
  if (value.empty()) return refuse(fmt::format("{} is empty", what));
  if (value.size() > limits::id_bytes_max) {
    return refuse(
        fmt::format("{} has {} bytes, limit {}", what, value.size(), limits::id_bytes_max));
  }
  return {};
}

result<void> check_arrays(const request_type& request) {
  const auto layers = request.layer_names_size();
  if (layers == 0) return refuse("layer_names is empty");
  if (static_cast<std::size_t>(layers) > limits::layers_per_worker_max) {
    return refuse(fmt::format("{} layers, limit {}", layers, limits::layers_per_worker_max));
  }
  const std::pair<std::string_view, int> arrays[] = {
      {"wrapper_bytes", request.wrapper_bytes_size()},
      {"num_blocks", request.num_blocks_size()},
      {"bytes_per_block", request.bytes_per_block_size()},
      {"kv_stride_bytes", request.kv_stride_bytes_size()},
      {"segments", request.segments_size()},
  };
  for (const auto& [name, size] : arrays) {
    if (size != layers) {
      return refuse(fmt::format("{} has {} entries for {} layer_names", name, size, layers));
    }
  }
  const auto groups = request.layer_group_ids_size();
  if (groups != 0 && groups != layers) {
    return refuse(fmt::format("layer_group_ids has {} entries for {} layer_names", groups, layers));
  }
  return {};
}

layer_layout layout_of(const request_type& request, int i) {
  layer_layout layer;
  layer.name = request.layer_names(i);
  layer.num_blocks = request.num_blocks(i);
  layer.segment_bytes = request.bytes_per_block(i);
  layer.kv_stride = request.kv_stride_bytes(i);
  layer.segments = request.segments(i);
  layer.group = request.layer_group_ids_size() == 0 ? 0 : request.layer_group_ids(i);
  return layer;
}

result<void> seal(instance& complete, block_store& store) {
  std::vector<worker_layout> layouts;
  for (const auto& each : complete.workers)
    layouts.push_back(each->layout);
  auto places =
      topology::seal({.tp_size = complete.tp_size, .page_first = complete.page_first}, layouts);
  if (!places) return tl::unexpected(places.error());
  for (std::uint32_t group = 0; group < places->groups().size(); ++group) {
    const auto in = store.open_scope(complete.namespace_name, group, places->groups()[group]);
    if (!in) return tl::unexpected(in.error());
    complete.scopes.push_back(*in);
  }
  complete.places = std::make_shared<const topology>(std::move(*places));
  complete.sealed = true;
  return {};
}

}  // namespace

result<void> validate(const request_type& request) {
  if (auto id = check_id("instance_id", request.instance_id()); !id) return id;
  // An empty namespace is one like any other; only its length matters.
  if (request.namespace_().size() > limits::id_bytes_max) {
    return refuse(fmt::format("namespace has {} bytes, limit {}", request.namespace_().size(),
                              limits::id_bytes_max));
  }
  if (request.device_id() < 0) {
    return refuse(fmt::format("device_id must not be negative, got {}", request.device_id()));
  }
  if (request.tp_size() == 0) return refuse("tp_size must be greater than 0");
  if (request.world_size() == 0) return refuse("world_size must be greater than 0");
  if (request.tp_rank() >= request.tp_size()) {
    return refuse(fmt::format("tp_rank {} must be less than tp_size {}", request.tp_rank(),
                              request.tp_size()));
  }
  if (request.world_size() > limits::world_size_max) {
    return refuse(fmt::format("world_size {} is beyond the limit {}", request.world_size(),
                              limits::world_size_max));
  }
  if (request.tp_size() > limits::world_size_max) {
    return refuse(fmt::format("tp_size {} is beyond the limit {}", request.tp_size(),
                              limits::world_size_max));
  }
  return check_arrays(request);
}

result<std::shared_ptr<const worker>> open_worker(const request_type& request,
                                                  device_opener& opener) {
  auto fresh = std::make_shared<worker>();
  fresh->layout.device_id = request.device_id();
  fresh->layout.tp_rank = request.tp_rank();
  fresh->layout.pp_rank = request.pp_rank();
  for (int i = 0; i < request.layer_names_size(); ++i) {
    auto layer = layout_of(request, i);
    const auto place = static_cast<std::uint32_t>(i);
    if (!fresh->layer_by_name.emplace(layer.name, place).second) {
      return fail(errc::invalid_argument, fmt::format("layer {} is listed twice", layer.name));
    }
    const auto& wrapper = request.wrapper_bytes(i);
    if (wrapper.size() > limits::wrapper_bytes_max) {
      return fail(errc::invalid_argument,
                  fmt::format("layer {}: wrapper_bytes has {} bytes, limit {}", layer.name,
                              wrapper.size(), limits::wrapper_bytes_max));
    }
    auto memory = opener.open(std::as_bytes(std::span(wrapper)));
    if (!memory) {
      // A wrapper that cannot be opened, for whatever reason, is INTERNAL on this wire.
      return fail(errc::device, fmt::format("register tensor failed: layer {}: {}", layer.name,
                                            memory.error().detail));
    }
    if (auto fits = validate(layer, (*memory)->size()); !fits) {
      return tl::unexpected(fits.error());
    }
    if (!fresh->memory.empty() && &fresh->copier() != &(*memory)->owner()) {
      return fail(errc::invalid_argument,
                  fmt::format("layer {} is on another device than layer {}", layer.name,
                              fresh->layout.layers.front().name));
    }
    fresh->memory.push_back(std::move(*memory));
    fresh->layout.layers.push_back(std::move(layer));
  }
  return fresh;
}

result<void> check_joins(const request_type& request, const instance& current) {
  if (current.tp_size != request.tp_size() || current.world_size != request.world_size() ||
      current.page_first != request.page_first()) {
    return fail(errc::topology_mismatch,
                fmt::format("instance {} has tp_size {} world_size {} page_first {}, this worker "
                            "tp_size {} world_size {} page_first {}",
                            current.id, current.tp_size, current.world_size, current.page_first,
                            request.tp_size(), request.world_size(), request.page_first()));
  }
  if (current.namespace_name != request.namespace_()) {
    return fail(errc::topology_mismatch,
                fmt::format("instance {} is in namespace {}, this worker in {}", current.id,
                            current.namespace_name, request.namespace_()));
  }
  if (current.find_worker(request.device_id()) != nullptr) {
    return fail(errc::invalid_argument,
                fmt::format("GPU context for device {} already exists", request.device_id()));
  }
  if (current.sealed) {
    return fail(errc::invalid_argument,
                fmt::format("instance {} is already fully registered", current.id));
  }
  return {};
}

result<std::shared_ptr<const instance>> add_worker(const request_type& request,
                                                   std::shared_ptr<const instance> current,
                                                   std::shared_ptr<const worker> fresh,
                                                   std::shared_ptr<instance_life> life,
                                                   std::uint64_t serial, block_store& store) {
  auto next = current ? std::make_shared<instance>(*current) : std::make_shared<instance>();
  if (!current) {
    next->id = request.instance_id();
    next->namespace_name = request.namespace_();
    next->serial = serial;
    next->tp_size = request.tp_size();
    next->world_size = request.world_size();
    next->page_first = request.page_first();
    next->life = std::move(life);
  }
  next->workers.push_back(std::move(fresh));
  if (next->workers.size() == next->world_size) {
    if (auto sealed = seal(*next, store); !sealed) return tl::unexpected(sealed.error());
  }
  return next;
}

}  // namespace kvd
