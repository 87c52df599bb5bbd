#include "cli/bench_engine.hpp"

#include <cstring>

#include <fmt/format.h>

#include "cli/bench.hpp"

namespace kvd {

namespace {

constexpr auto connect_timeout = std::chrono::seconds(10);
constexpr auto load_timeout = std::chrono::seconds(120);  // a stock engine's patience
constexpr auto query_timeout = std::chrono::seconds(60);

std::uint64_t layer_seed(std::uint64_t seed, std::size_t layer) noexcept {
  return spread(seed) + layer;
}

}  // namespace

bench_engine::bench_engine(const bench_engine_options& options, const clock& time,
                           host_tensor tensor, load_flag flag,
                           std::unique_ptr<engine_client> client)
    : options_(options), time_(time), tensor_(std::move(tensor)), flag_(std::move(flag)),
      client_(std::move(client)) {
  worker_.instance_id = options.instance;
  topology_.name_space = options.name_space;
  for (std::size_t i = 0; i < options.layers; ++i) {
    layer_names_.push_back(fmt::format("model.layers.{:04}.attn", i));
  }
}

result<std::unique_ptr<bench_engine>>
bench_engine::start(const bench_engine_options& options, const clock& time, random_source& random) {
  auto client = engine_client::connect(options.address, connect_timeout);
  if (!client) return tl::unexpected(std::move(client.error()));
  auto tensor = host_tensor::create(options.blocks * options.block_bytes, random);
  if (!tensor) return tl::unexpected(std::move(tensor.error()));
  auto flag = load_flag::create(random);
  if (!flag) return tl::unexpected(std::move(flag.error()));
  std::unique_ptr<bench_engine> engine(
      new bench_engine(options, time, std::move(*tensor), std::move(*flag), std::move(*client)));
  engine->session_.push_back(engine->client_->open_session(engine->worker_, engine->topology_));
  if (auto done = engine->register_tensor(); !done) return tl::unexpected(std::move(done.error()));
  return engine;
}

result<void> bench_engine::register_tensor() {
  const auto segment_bytes = options_.block_bytes / options_.layers;
  const auto layer_bytes = segment_bytes * options_.blocks;
  std::vector<engine_layer> layers;
  for (std::size_t i = 0; i < options_.layers; ++i) {
    engine_layer layer;
    layer.name = layer_names_[i];
    layer.wrapper = tensor_.wrapper(i * layer_bytes, layer_bytes);
    layer.num_blocks = options_.blocks;
    layer.segment_bytes = segment_bytes;
    layers.push_back(std::move(layer));
  }
  return client_->register_worker(worker_, topology_, layers);
}

bench_engine::~bench_engine() {
  // Refused when the registration was; the session's end would do the same, only later.
  static_cast<void>(client_->unregister(worker_.instance_id));
}

std::span<std::byte> bench_engine::segment(std::size_t layer, std::uint32_t block) const noexcept {
  const auto bytes = options_.block_bytes / options_.layers;
  return tensor_.bytes().subspan((layer * options_.blocks + block) * bytes, bytes);
}

void bench_engine::fill(std::uint32_t block, std::uint64_t seed) noexcept {
  for (std::size_t i = 0; i < options_.layers; ++i) {
    fill_known(segment(i, block), layer_seed(seed, i));
  }
}

void bench_engine::poison(std::uint32_t block) noexcept {
  for (std::size_t i = 0; i < options_.layers; ++i) {
    const auto bytes = segment(i, block);
    std::memset(bytes.data(), 0xA5, bytes.size());
  }
}

result<void> bench_engine::verify(std::uint32_t block, std::uint64_t seed) const {
  for (std::size_t i = 0; i < options_.layers; ++i) {
    if (const auto wrong = first_wrong_byte(segment(i, block), layer_seed(seed, i))) {
      return fail(errc::internal, fmt::format("wrong bytes in layer {} from byte {} of {} on", i,
                                              *wrong, options_.block_bytes / options_.layers));
    }
  }
  return {};
}

result<void> bench_engine::save(std::span<const std::uint32_t> blocks,
                                std::span<const std::string> hashes) {
  return client_->save(worker_, {layer_names_, blocks, hashes});
}

result<engine_answer> bench_engine::query(std::span<const std::string> hashes) {
  const auto req_id = fmt::format("{}-{}", worker_.instance_id, ++queries_);
  const auto prepared = engine_client::prepare_query(worker_.instance_id, req_id, hashes);
  const auto deadline = time_.now() + query_timeout;
  for (;;) {
    auto answer = client_->query(prepared);
    if (!answer || !answer->loading) return answer;
    if (time_.now() >= deadline) return fail(errc::cancelled, "a query is still loading");
    pause_ms(1);
  }
}

result<void> bench_engine::load(std::string_view lease, std::span<const std::uint32_t> blocks) {
  flag_.reset();
  const auto deadline = time_.now() + load_timeout;
  if (auto taken = client_->load(worker_, {layer_names_, lease, blocks, flag_.name()}); !taken) {
    return taken;
  }
  return flag_.wait(time_, deadline);
}

}  // namespace kvd
