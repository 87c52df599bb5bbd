#include "cli/bench_meta_client.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "metaserver.pb.h"

#include "cli/bench.hpp"

namespace kvd {

namespace {

constexpr const char* meta_namespace = "bench-meta";
constexpr int meta_call_seconds_max = 120;

grpc::ByteBuffer serialised(const google::protobuf::Message& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  return {&bytes, 1};
}

template<class Message>
result<Message> parsed(grpc::ByteBuffer& from) {
  Message out;
  const auto status = grpc::SerializationTraits<Message>::Deserialize(&from, &out);
  if (!status.ok()) return fail(errc::io, status.error_message());
  return out;
}

template<class Message>
Message of_node(const bench_node& node) {
  Message out;
  out.set_node(node.address);
  out.set_node_id(node.id);
  return out;
}

}  // namespace

struct meta_client::connection {
  std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
  explicit connection(std::shared_ptr<grpc::Channel> open)
      : channel(std::move(open)), stub(channel) {}
};

meta_client::meta_client(const std::string& address) {
  grpc::ChannelArguments arguments;
  // A connection of its own: gRPC would give all clients of a process the same one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetMaxReceiveMessageSize(-1);
  connection_ = std::make_unique<connection>(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

meta_client::~meta_client() = default;

result<grpc::ByteBuffer> meta_client::call(const std::string& method, const request& body) {
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_seconds(meta_call_seconds_max, GPR_TIMESPAN));
  context.set_wait_for_ready(true);
  grpc::CompletionQueue done;
  const auto running =
      connection_->stub.PrepareUnaryCall(&context, "/pegaflow.MetaServer/" + method, body, &done);
  grpc::ByteBuffer answer;
  grpc::Status status;
  running->StartCall();
  running->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  done.Next(&tag, &ok);
  if (!status.ok()) {
    return fail(errc::io,
                fmt::format("{} was refused ({}): {}", method,
                            static_cast<int>(status.error_code()), status.error_message()));
  }
  return answer;
}

meta_client::request meta_client::insert_of(const bench_node& node, std::uint64_t first,
                                            std::uint64_t count) {
  auto message = of_node<pegaflow::InsertBlockHashesRequest>(node);
  message.set_namespace_(meta_namespace);
  for (auto i = first; i < first + count; ++i)
    message.add_block_hashes(known_hash(i));
  return serialised(message);
}

meta_client::request meta_client::query_of(std::uint64_t first, std::uint64_t count) {
  pegaflow::QueryPrefixBlocksRequest message;
  message.set_namespace_(meta_namespace);
  for (auto i = first; i < first + count; ++i)
    message.add_block_hashes(known_hash(i));
  return serialised(message);
}

result<void> meta_client::heartbeat(const bench_node& node) {
  const auto answer =
      call("HeartbeatNode", serialised(of_node<pegaflow::HeartbeatNodeRequest>(node)));
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

result<void> meta_client::insert(const request& blocks) {
  auto bytes = call("InsertBlockHashes", blocks);
  if (!bytes) return tl::unexpected(bytes.error());
  const auto answer = parsed<pegaflow::InsertBlockHashesResponse>(*bytes);
  if (!answer) return tl::unexpected(answer.error());
  if (!answer->status().ok()) return fail(errc::io, answer->status().message());
  return {};
}

result<std::uint32_t> meta_client::query(const request& prefix) {
  auto bytes = call("QueryPrefixBlocks", prefix);
  if (!bytes) return tl::unexpected(bytes.error());
  const auto answer = parsed<pegaflow::QueryPrefixBlocksResponse>(*bytes);
  if (!answer) return tl::unexpected(answer.error());
  std::uint32_t longest = 0;
  for (const auto& each : answer->nodes())
    longest = std::max(longest, each.prefix_len());
  return longest;
}

result<std::uint64_t> meta_client::unregister(const bench_node& node) {
  auto bytes = call("UnregisterNode", serialised(of_node<pegaflow::UnregisterNodeRequest>(node)));
  if (!bytes) return tl::unexpected(bytes.error());
  return parsed<pegaflow::UnregisterNodeResponse>(*bytes).map(
      [](const pegaflow::UnregisterNodeResponse& answer) { return answer.removed_owners(); });
}

}  // namespace kvd
