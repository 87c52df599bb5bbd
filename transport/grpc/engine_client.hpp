#pragma once
// A small blocking client of the Engine service, for kvd's own tools and tests.
//
// One call, one round trip, one deadline: a call that is not answered in time returns
// errc::cancelled, so nothing here hangs. Statuses map back to kvd's error classes; the detail is
// the method, the status and the server's own words. Generated code stays behind this header.
//
// Owner: any number of threads may call one client at once; sessions and prepared queries belong to
// one thread each. The client outlives both.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace kvd {

// Which worker of which instance speaks.
struct engine_worker {
  std::string instance_id;
  std::uint32_t tp_rank = 0;
  std::uint32_t pp_rank = 0;
  std::int32_t device_id = 0;
};

struct engine_topology {
  std::string name_space;
  std::uint32_t tp_size = 1;
  std::uint32_t world_size = 1;
  bool page_first = false;
};

struct engine_layer {
  std::string name;
  std::vector<std::byte> wrapper;
  std::uint64_t num_blocks = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t kv_stride_bytes = 0;
  std::uint32_t segments = 1;
  std::uint32_t group_id = 0;
};

// The same blocks of every named layer. REQUIRES: as many ids as hashes.
struct engine_save {
  std::span<const std::string> layers;
  std::span<const std::uint32_t> block_ids;
  std::span<const std::string> hashes;
};

struct engine_answer {
  bool loading = false;  // ask again
  std::uint64_t hits = 0;
  std::string lease;  // empty without hits
};

// All blocks of one lease into one group of layers. REQUIRES: as many ids as the lease has blocks.
struct engine_load {
  std::span<const std::string> layers;
  std::string_view lease;
  std::span<const std::uint32_t> block_ids;
  std::string_view flag;  // name of the load flag
};

class engine_client {
public:
  // `address` is host:port. Waits until the server takes calls; errc::unavailable names the
  // address.
  static result<std::unique_ptr<engine_client>> connect(const std::string& address,
                                                        std::chrono::milliseconds timeout);
  ~engine_client();
  engine_client(const engine_client&) = delete;
  engine_client& operator=(const engine_client&) = delete;

  result<void> health();
  result<void> register_worker(const engine_worker& worker, const engine_topology& topology,
                               std::span<const engine_layer> layers);
  result<void> unregister(const std::string& instance_id);
  result<void> save(const engine_worker& worker, const engine_save& blocks);
  // Returns once the server has taken the load; its end is written to the flag.
  result<void> load(const engine_worker& worker, const engine_load& blocks);
  result<void> release(std::string_view lease);

  // A query whose request is built once, so that a benchmark times the call and nothing else.
  class prepared_query {
  public:
    prepared_query(prepared_query&&) noexcept;
    ~prepared_query();

  private:
    friend class engine_client;
    prepared_query();
    struct request;
    std::unique_ptr<request> request_;
  };
  static prepared_query prepare_query(const std::string& instance_id, const std::string& req_id,
                                      std::span<const std::string> hashes);
  result<engine_answer> query(const prepared_query& prepared);

  // The open stream that tells the server that the instance lives. Its end removes the instance.
  class session {
  public:
    session(session&&) noexcept;
    ~session();

  private:
    friend class engine_client;
    session();
    struct stream;
    std::unique_ptr<stream> stream_;
  };
  session open_session(const engine_worker& worker, const engine_topology& topology);

private:
  struct connection;
  explicit engine_client(std::unique_ptr<connection> open);
  std::unique_ptr<connection> connection_;
};

}  // namespace kvd
