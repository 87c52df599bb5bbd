// LINK: kvd_actors
// Every request message of the Engine service, against a whole small server without sockets.
//
// An input is a script of requests from any client. Half of them are raw bytes of a message; the
// other half are built field by field from short lists, so that names, hashes and leases meet.
// Engine memory is allocated to the byte, so AddressSanitizer sees a copy that leaves it;
// afterwards the invariants of store and pool must hold, and nothing may be left running.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.pb.h"

#include "actors/instance_registry.hpp"
#include "core/log.hpp"
#include "core/random.hpp"
#include "memory/lease_table.hpp"
#include "tests/fuzz/byte_reader.hpp"
#include "transport/device/inline_device.hpp"
#include "transport/engine/load_path.hpp"
#include "transport/engine/query_path.hpp"
#include "transport/engine/save_path.hpp"

using namespace kvd;
using kvd::fuzz::byte_reader;

namespace {

constexpr std::size_t pool_bytes = 256 << 10;
constexpr std::size_t requests_max = 64;

[[noreturn]] void broken(const std::string& what) {
  std::fprintf(stderr, "broken: %s\n", what.c_str());
  std::abort();
}

// Engine memory whose end AddressSanitizer knows.
class heap_memory final : public device_memory {
public:
  heap_memory(std::size_t bytes, device& owner) : bytes_(bytes), owner_(owner) {}
  std::byte* data() const noexcept override { return bytes_.data(); }
  std::size_t size() const noexcept override { return bytes_.size(); }
  device& owner() const noexcept override { return owner_; }

private:
  mutable std::vector<std::byte> bytes_;
  device& owner_;
};

// The first byte of a wrapper says how large the memory is.
class heap_opener final : public device_opener {
public:
  explicit heap_opener(device& owner) : owner_(owner) {}
  result<std::shared_ptr<device_memory>> open(std::span<const std::byte> wrapper) override {
    if (wrapper.empty()) return fail(errc::device, "no such memory");
    const auto bytes = (std::to_integer<std::size_t>(wrapper[0]) + 1) * 256;
    return std::make_shared<heap_memory>(bytes, owner_);
  }

private:
  device& owner_;
};

// A load flag as clients make it: one for all inputs.
class load_flag {
public:
  load_flag() : name_("kvd_fuzz_" + std::to_string(::getpid())) {
    const int file = ::shm_open(("/" + name_).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ::ftruncate(file, 4096) != 0) broken("no shared memory for a load flag");
    auto* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) broken("the load flag cannot be mapped");
    ::close(file);
    auto* words = static_cast<std::uint64_t*>(at);
    words[0] = 8;
    words[1] = 0x50464C44 | (std::uint64_t{1} << 32);
    state_ = reinterpret_cast<std::int64_t*>(words + 2);
  }
  ~load_flag() { ::shm_unlink(("/" + name_).c_str()); }

  const std::string& name() const { return name_; }
  void reset() { *state_ = 0; }
  std::int64_t state() const { return *state_; }

private:
  std::string name_;
  std::int64_t* state_ = nullptr;
};

// Waits for one Save; `over` counts, so that an answer that never comes is seen.
struct counted_waiter final : save_waiter {
  std::size_t answers = 0;
  void saved(result<std::string>) noexcept override { ++answers; }
};

struct pending_save {
  std::unique_ptr<pegaflow::SaveRequest> request;
  std::unique_ptr<counted_waiter> waiter;
};

// The server role without threads: copies run when the script, or the end, says so.
class world {
public:
  world() {
    const pool_region region{0, pool_, pool_bytes};
    slabs_ = *slab_pool::create(
        {.regions = std::span(&region, 1), .hint_value_bytes = 0, .blockwise = false});
    slabs_->grow(0, pool_bytes);
    store_.emplace(block_store::options{.records_max = pool_bytes / 512, .hash_seed = 7}, *slabs_,
                   *make_eviction_policy(""), time_, metrics_.store);
    leases_.emplace(*store_, time_, random_, metrics_.store, std::chrono::seconds(600));
    queries_.emplace(*store_, *leases_, nullptr);
    saves_path_.emplace(*store_, time_, metrics_.copy);
    loads_path_.emplace(*store_, *leases_, time_, metrics_.copy);
    registry_.emplace(table_, *store_, *leases_, opener_, metrics_.control);
  }

  void register_worker(const pegaflow::RegisterContextRequest& request) {
    if (!validate(request)) return;
    (void)registry_->register_worker(request, [this](std::uint64_t id) { idle_.push_back(id); });
  }

  void save(pegaflow::SaveRequest request) {
    auto running = begin(request.instance_id());
    if (!running) return;
    saves_.push_back({std::make_unique<pegaflow::SaveRequest>(std::move(request)),
                      std::make_unique<counted_waiter>()});
    saves_path_->start(std::move(*running), *saves_.back().request, *saves_.back().waiter);
  }

  void load(pegaflow::LoadRequest request, load_flag& flag) {
    for (auto& each : *request.mutable_loads()) {
      if (each.lease() == "L") each.set_lease(lease_);
    }
    if (!load_path::check_leases(request)) return;
    auto running = begin(request.instance_id());
    if (!running) return;
    auto attached = load_state::attach(flag.name());
    if (!attached) broken(attached.error().detail);
    flag.reset();
    const auto begun = loads_path_->start(std::move(*running), request, std::move(*attached));
    if (!begun && flag.state() != -1) broken("a refused load left its flag pending");
  }

  void query(const pegaflow::QueryRequest& request) {
    const auto of = table_.find(request.instance_id());
    if (!of) return;
    pegaflow::QueryResponse answer;
    if (!queries_->query(*of, request, answer)) return;
    const auto& ready = answer.ready();
    if (ready.num_hit_blocks() > static_cast<std::uint64_t>(request.block_hashes_size())) {
      broken("more hits than hashes");
    }
    if (!ready.lease().empty()) lease_ = ready.lease();
  }

  void release(const pegaflow::ReleaseRequest& request) {
    (void)leases_->release(request.lease() == "L" ? lease_ : request.lease());
  }

  void unregister(const pegaflow::UnregisterRequest& request) {
    registry_->unregister(request.instance_id(), reply<void>([](const result<void>&) {}));
    tell_idle();
  }

  void copy_one() {
    device_.run_one();
    tell_idle();
  }
  void script(copy_script next) { device_.script(next); }
  void pass(duration time) {
    time_.advance(time);
    leases_->expire();
    store_->drop_unsealed(limits::unsealed_age_max);
    saves_path_->tick();
  }
  void trim() { store_->trim(16); }

  // Everything comes to its end; then nothing may be left.
  void finish() {
    registry_->cleanup("", reply<removed_instances>([](const result<removed_instances>&) {}));
    while (device_.run_one())
      tell_idle();
    tell_idle();
    pass(limits::save_wait_max + std::chrono::seconds(1));
    tell_idle();
    for (const auto& each : saves_) {
      if (each.waiter->answers != 1) broken("a save was not answered exactly once");
    }
    if (loads_path_->running() != 0) broken("a load is still running");
    if (auto why = store_->check(); !why.empty()) broken(why);
    if (auto why = slabs_->check(); !why.empty()) broken(why);
    leases_->drop_all();
    store_->drop_resident();
    if (auto why = store_->check(); !why.empty()) broken(why);
  }

private:
  result<operation> begin(const std::string& instance_id) {
    auto of = table_.find(instance_id);
    if (!of) return fail(errc::instance_missing, instance_id);
    return operation::begin(std::move(of));
  }
  void tell_idle() {
    while (!idle_.empty()) {
      const auto serial = idle_.back();
      idle_.pop_back();
      registry_->idle(serial);
    }
  }

  alignas(4096) inline static std::byte pool_[pool_bytes];
  fake_clock time_;
  seeded_random random_{1};
  server_metrics metrics_;
  std::unique_ptr<slab_pool> slabs_;
  std::optional<block_store> store_;
  std::optional<lease_table> leases_;
  std::optional<query_path> queries_;
  std::optional<save_path> saves_path_;
  std::optional<load_path> loads_path_;
  instance_table table_;
  std::vector<pending_save> saves_;
  inline_device device_{limits::copy_jobs_max, time_, metrics_.copy};
  heap_opener opener_{device_};
  std::optional<instance_registry> registry_;
  std::vector<std::uint64_t> idle_;
  std::string lease_;
};

std::string instance_name(byte_reader& in) {
  return std::string(1, "ab"[in.below(2)]);
}
std::string layer_name(byte_reader& in) {
  return std::string(1, "lmn"[in.below(3)]);
}
std::string hash(byte_reader& in) {
  const auto number = in.below(24);
  return number == 23 ? std::string() : std::string(number < 20 ? 16 : 32, char('A' + number));
}

pegaflow::RegisterContextRequest built_registration(byte_reader& in) {
  pegaflow::RegisterContextRequest request;
  request.set_instance_id(instance_name(in));
  request.set_namespace_(std::string(1, "xy"[in.below(2)]));
  request.set_tp_size(1 + in.below(2));
  request.set_world_size(1 + in.below(2));
  request.set_tp_rank(in.below(2));
  request.set_pp_rank(in.below(2));
  request.set_device_id(static_cast<std::int32_t>(in.below(3)));
  request.set_page_first(in.below(4) == 0);
  const auto layers = 1 + in.below(3);
  for (std::uint32_t i = 0; i < layers; ++i) {
    request.add_layer_names(std::string(1, "lmn"[i]));
    request.add_wrapper_bytes(std::string(1, static_cast<char>(in.byte())));
    request.add_num_blocks(in.below(9));
    request.add_bytes_per_block(64ULL * (1 + in.below(8)));
    const auto segments = 1 + in.below(2);
    request.add_segments(segments);
    request.add_kv_stride_bytes(segments == 1 ? 0 : 64ULL * (1 + in.below(32)));
    if (in.below(8) == 0) request.add_layer_group_ids(in.below(3));
  }
  return request;
}

pegaflow::SaveRequest built_save(byte_reader& in) {
  pegaflow::SaveRequest request;
  request.set_instance_id(instance_name(in));
  request.set_device_id(static_cast<std::int32_t>(in.below(3)));
  request.set_tp_rank(in.below(2));
  request.set_pp_rank(in.below(2));
  const auto layers = in.below(4);
  for (std::uint32_t i = 0; i < layers; ++i) {
    auto* layer = request.add_saves();
    layer->set_layer_name(layer_name(in));
    const auto blocks = in.below(6);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      layer->add_block_ids(in.below(9));
      layer->add_block_hashes(hash(in));
    }
  }
  return request;
}

pegaflow::QueryRequest built_query(byte_reader& in) {
  pegaflow::QueryRequest request;
  request.set_instance_id(instance_name(in));
  request.set_req_id("r");
  request.set_group_id(in.below(3));
  request.set_wait_for_full_prefix(in.below(2) == 0);
  const auto hashes = in.below(8);
  for (std::uint32_t i = 0; i < hashes; ++i)
    request.add_block_hashes(hash(in));
  return request;
}

pegaflow::LoadRequest built_load(byte_reader& in) {
  pegaflow::LoadRequest request;
  request.set_instance_id(instance_name(in));
  request.set_device_id(static_cast<std::int32_t>(in.below(3)));
  const auto groups = in.below(3);
  for (std::uint32_t i = 0; i < groups; ++i) {
    auto* group = request.add_groups();
    const auto layers = in.below(3);
    for (std::uint32_t l = 0; l < layers; ++l)
      group->add_layer_names(layer_name(in));
  }
  auto* load = request.add_loads();
  load->set_lease(in.below(8) == 0 ? std::string(16, 'z') : "L");
  for (std::uint32_t i = 0; i < groups; ++i) {
    auto* targets = load->add_block_ids_by_group();
    const auto blocks = in.below(8);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      auto* target = targets->add_targets();
      if (in.below(4) != 0) target->set_block_id(in.below(9));
    }
  }
  return request;
}

template<class Message>
std::optional<Message> raw(byte_reader& in) {
  const auto bytes = in.bytes(in.below(256));
  Message message;
  if (!message.ParseFromString(bytes)) return {};
  return message;
}

void raw_request(world& server, byte_reader& in, load_flag& flag) {
  switch (in.below(6)) {
  case 0:
    if (auto m = raw<pegaflow::RegisterContextRequest>(in)) server.register_worker(*m);
    break;
  case 1:
    if (auto m = raw<pegaflow::SaveRequest>(in)) server.save(std::move(*m));
    break;
  case 2:
    if (auto m = raw<pegaflow::LoadRequest>(in)) server.load(std::move(*m), flag);
    break;
  case 3:
    if (auto m = raw<pegaflow::QueryRequest>(in)) server.query(*m);
    break;
  case 4:
    if (auto m = raw<pegaflow::ReleaseRequest>(in)) server.release(*m);
    break;
  default:
    if (auto m = raw<pegaflow::UnregisterRequest>(in)) server.unregister(*m);
    break;
  }
}

void built_request(world& server, byte_reader& in, load_flag& flag) {
  switch (in.below(10)) {
  case 0: server.register_worker(built_registration(in)); break;
  case 1:
  case 2: server.save(built_save(in)); break;
  case 3:
  case 4: server.query(built_query(in)); break;
  case 5:
  case 6: server.load(built_load(in), flag); break;
  case 7: {
    pegaflow::ReleaseRequest request;
    request.set_lease("L");
    server.release(request);
    break;
  }
  case 8: {
    pegaflow::UnregisterRequest request;
    request.set_instance_id(instance_name(in));
    server.unregister(request);
    break;
  }
  default: server.script(static_cast<copy_script>(in.below(4))); break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static load_flag flag;
  log::set_level(log::level::error);
  google::protobuf::SetLogHandler(nullptr);  // it reports every malformed string
  byte_reader in(data, size);
  world server;
  for (std::size_t i = 0; i < requests_max && !in.empty(); ++i) {
    switch (in.below(8)) {
    case 0: raw_request(server, in, flag); break;
    case 1:
    case 2: server.copy_one(); break;
    case 3: server.pass(std::chrono::seconds(in.below(100))); break;
    case 4: server.trim(); break;
    default: built_request(server, in, flag); break;
    }
  }
  server.finish();
  return 0;
}
