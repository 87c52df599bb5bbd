#pragma once
// Plays one engine on host memory: a tensor of its own, registered with a server, and the calls
// that a connector makes around it. Blocks hold known bytes, so that what comes back can be
// checked.
//
// Owner: one thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "transport/device/host_tensor.hpp"
#include "transport/grpc/engine_client.hpp"

namespace kvd {

struct bench_engine_options {
  std::string address;  // of the server's gRPC port
  std::string instance;
  std::string name_space;
  std::size_t layers = 1;
  std::uint32_t blocks = 0;
  std::uint64_t block_bytes = 0;  // over all layers; a multiple of `layers`
};

class bench_engine {
public:
  static result<std::unique_ptr<bench_engine>> start(const bench_engine_options& options,
                                                     const clock& time, random_source& random);
  ~bench_engine();
  bench_engine(const bench_engine&) = delete;
  bench_engine& operator=(const bench_engine&) = delete;

  // The whole tensor: layer after layer, each with its blocks in order.
  std::span<std::byte> tensor() noexcept { return tensor_.bytes(); }
  void fill(std::uint32_t block, std::uint64_t seed) noexcept;
  // Overwrites the block with bytes that no seed gives a whole block of.
  void poison(std::uint32_t block) noexcept;
  // errc::internal names layer and byte when the block does not hold the seed's bytes.
  result<void> verify(std::uint32_t block, std::uint64_t seed) const;

  result<void> save(std::span<const std::uint32_t> blocks, std::span<const std::string> hashes);
  // Asks until the answer is final. errc::cancelled: still loading after a minute.
  result<engine_answer> query(std::span<const std::string> hashes);
  // Returns when the bytes are there.
  result<void> load(std::string_view lease, std::span<const std::uint32_t> blocks);

  engine_client& client() noexcept { return *client_; }
  const engine_worker& worker() const noexcept { return worker_; }

private:
  bench_engine(const bench_engine_options& options, const clock& time, host_tensor tensor,
               load_flag flag, std::unique_ptr<engine_client> client);
  std::span<std::byte> segment(std::size_t layer, std::uint32_t block) const noexcept;
  result<void> register_tensor();

  const bench_engine_options options_;
  const clock& time_;
  host_tensor tensor_;
  load_flag flag_;
  std::unique_ptr<engine_client> client_;
  engine_worker worker_;
  engine_topology topology_;
  std::vector<std::string> layer_names_;
  std::vector<engine_client::session> session_;  // none or one
  std::uint64_t queries_ = 0;
};

}  // namespace kvd
