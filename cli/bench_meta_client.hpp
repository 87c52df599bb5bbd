#pragma once
// The client of `kvd bench meta`: calls of pegaflow.MetaServer over one connection, with requests
// that were serialised before the clock runs, so that the server is what is measured. Works with
// any server of that contract. One thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <grpcpp/support/byte_buffer.h>

#include "core/error.hpp"

namespace kvd {

struct bench_node {
  std::string address;
  std::string id;  // UUID text
};

class meta_client {
public:
  using request = grpc::ByteBuffer;

  explicit meta_client(const std::string& address);
  ~meta_client();
  meta_client(const meta_client&) = delete;
  meta_client& operator=(const meta_client&) = delete;

  // `known_hash` of `count` numbers from `first` on.
  static request insert_of(const bench_node& node, std::uint64_t first, std::uint64_t count);
  static request query_of(std::uint64_t first, std::uint64_t count);

  // Errors are errc::io with the status' text.
  result<void> heartbeat(const bench_node& node);
  result<void> insert(const request& blocks);
  // The longest prefix of any node.
  result<std::uint32_t> query(const request& prefix);
  // How many owner records went.
  result<std::uint64_t> unregister(const bench_node& node);

private:
  struct connection;
  result<grpc::ByteBuffer> call(const std::string& method, const request& body);
  std::unique_ptr<connection> connection_;
};

}  // namespace kvd
