#pragma once
// The engine plane over a small pool and fake engine memory, without sockets, actors or threads
// other than the device's.

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/memory/store_fixture.hpp"
#include "transport/device/inline_device.hpp"
#include "transport/engine/load_path.hpp"
#include "transport/engine/query_path.hpp"
#include "transport/engine/registration.hpp"
#include "transport/engine/save_path.hpp"

namespace kvd::test {

// Engine memory on the heap, so that AddressSanitizer sees a copy that leaves it.
class heap_memory final : public device_memory {
public:
  heap_memory(std::size_t bytes, device& of) : bytes_(bytes), owner_(of) {}
  std::byte* data() const noexcept override { return bytes_.data(); }
  std::size_t size() const noexcept override { return bytes_.size(); }
  device& owner() const noexcept override { return owner_; }

private:
  mutable std::vector<std::byte> bytes_;
  device& owner_;
};

// A wrapper is the decimal number of bytes; every open gives fresh memory.
class heap_opener final : public device_opener {
public:
  explicit heap_opener(device& of) : owner_(of) {}
  result<std::shared_ptr<device_memory>> open(std::span<const std::byte> wrapper) override {
    const std::string text(reinterpret_cast<const char*>(wrapper.data()), wrapper.size());
    opened.push_back(std::make_shared<heap_memory>(std::stoul(text), owner_));
    return opened.back();
  }
  std::vector<std::shared_ptr<heap_memory>> opened;

private:
  device& owner_;
};

// A client's load flag in shared memory.
class client_flag {
public:
  client_flag()
      : name_("kvd-test-flag-" + std::to_string(::getpid()) + "-" + std::to_string(++made)) {
    const int fd = ::shm_open(("/" + name_).c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(::ftruncate(fd, 32) == 0);
    words_ =
        static_cast<std::uint64_t*>(::mmap(nullptr, 32, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
    words_[0] = 8;
    words_[1] = 0x50464C44ULL | (std::uint64_t{1} << 32);
  }
  ~client_flag() {
    unlink();
    ::munmap(words_, 32);
  }
  client_flag(const client_flag&) = delete;
  client_flag& operator=(const client_flag&) = delete;
  const std::string& name() const { return name_; }
  std::int64_t state() const {
    return static_cast<std::int64_t>(__atomic_load_n(&words_[2], __ATOMIC_ACQUIRE));
  }
  void reset() { __atomic_store_n(&words_[2], 0, __ATOMIC_RELEASE); }
  void unlink() { ::shm_unlink(("/" + name_).c_str()); }

private:
  static inline int made = 0;
  std::string name_;
  std::uint64_t* words_;
};

struct save_answer final : save_waiter {
  void saved(result<std::string> how) noexcept override { outcome = std::move(how); }
  bool ok() const { return outcome && outcome->has_value(); }
  std::optional<result<std::string>> outcome;
};

struct plane_fixture : store_fixture {
  explicit plane_fixture(std::size_t pool_bytes = 1 << 20, std::uint32_t fetch_reserve = 0)
      : store_fixture(pool_bytes, "lru", false, fetch_reserve) {}

  // Registers one worker of a model with `layers` layers "layer.N" of `blocks` blocks.
  result<void> register_worker(const std::string& id, std::int32_t device_id, std::uint32_t tp_rank,
                               std::uint32_t tp_size, std::uint32_t world, int layers = 2,
                               std::uint64_t bytes = 1024, std::uint64_t blocks = 16) {
    pegaflow::RegisterContextRequest request;
    request.set_instance_id(id);
    request.set_namespace_("ns");
    request.set_device_id(device_id);
    request.set_tp_rank(tp_rank);
    request.set_tp_size(tp_size);
    request.set_world_size(world);
    for (int i = 0; i < layers; ++i) {
      request.add_layer_names("layer." + std::to_string(i));
      request.add_wrapper_bytes(std::to_string(2 * bytes * blocks));
      request.add_num_blocks(blocks);
      request.add_bytes_per_block(bytes);
      request.add_kv_stride_bytes(bytes * blocks);
      request.add_segments(2);
    }
    return add(request);
  }
  result<void> add(const pegaflow::RegisterContextRequest& request) {
    if (auto valid = validate(request); !valid) return valid;
    auto current = instances.find(request.instance_id());
    if (current) {
      if (auto joins = check_joins(request, *current); !joins) return joins;
    }
    auto fresh = open_worker(request, opener);
    if (!fresh) return tl::unexpected(fresh.error());
    auto life = std::make_shared<instance_life>([this] { ++idle_notices; });
    auto next = add_worker(request, current, *fresh, life, ++serials, *store);
    if (!next) return tl::unexpected(next.error());
    instances.publish(*next);
    return {};
  }

  static pegaflow::SaveRequest save_request(const std::string& id, std::int32_t device_id,
                                            std::uint32_t tp_rank, int layers, int first_hash,
                                            std::vector<std::uint32_t> block_ids) {
    pegaflow::SaveRequest request;
    request.set_instance_id(id);
    request.set_device_id(device_id);
    request.set_tp_rank(tp_rank);
    const hashes names(first_hash, static_cast<int>(block_ids.size()));
    for (int i = 0; i < layers; ++i) {
      auto* layer = request.add_saves();
      layer->set_layer_name("layer." + std::to_string(i));
      for (const auto block_id : block_ids)
        layer->add_block_ids(block_id);
      for (const auto* hash : names.list())
        layer->add_block_hashes(*hash);
    }
    return request;
  }
  void start_save(const pegaflow::SaveRequest& request, save_answer& answer) {
    saves.start(*operation::begin(instances.find(request.instance_id())), request, answer);
  }
  pegaflow::QueryReady query(const std::string& id, int first_hash, int count,
                             std::uint32_t group = 0, bool whole = false) {
    pegaflow::QueryRequest request;
    request.set_instance_id(id);
    request.set_req_id("r");
    request.set_group_id(group);
    request.set_wait_for_full_prefix(whole);
    const hashes names(first_hash, count);
    for (const auto* hash : names.list())
      request.add_block_hashes(*hash);
    pegaflow::QueryResponse answer;
    query_outcome = queries.query(*instances.find(id), request, answer);
    return answer.ready();
  }
  static pegaflow::LoadRequest load_request(const std::string& id, std::int32_t device_id,
                                            int layers, const std::string& lease,
                                            std::vector<std::uint32_t> block_ids) {
    pegaflow::LoadRequest request;
    request.set_instance_id(id);
    request.set_device_id(device_id);
    auto* group = request.add_groups();
    for (int i = 0; i < layers; ++i)
      group->add_layer_names("layer." + std::to_string(i));
    auto* load = request.add_loads();
    load->set_lease(lease);
    auto* targets = load->add_block_ids_by_group();
    for (const auto block_id : block_ids)
      targets->add_targets()->set_block_id(block_id);
    return request;
  }
  result<void> start_load(const pegaflow::LoadRequest& request, const client_flag& flag) {
    return loads.start(*operation::begin(instances.find(request.instance_id())), request,
                       *load_state::attach(flag.name()));
  }
  void run_copies() {
    while (copier.run_one()) {
    }
  }

  copy_metrics copies;
  instance_table instances;
  query_path queries{*store, *leases, nullptr};
  save_path saves{*store, time, copies};
  load_path loads{*store, *leases, time, copies};
  inline_device copier{64, time, copies};
  heap_opener opener{copier};
  result<void> query_outcome;
  int idle_notices = 0;
  std::uint64_t serials = 0;
};

}  // namespace kvd::test
