#include "transport/grpc/engine_client.hpp"

#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "core/limits.hpp"
#include "engine.grpc.pb.h"
#include "transport/grpc/status.hpp"

namespace kvd {

namespace {

// A save of gigabytes into a full pool takes seconds; longer than this is a hang.
constexpr std::chrono::seconds call_timeout{60};
constexpr char query_method[] = "/pegaflow.Engine/QueryPrefetch";

tl::unexpected<error> refused(std::string_view method, const grpc::Status& status) {
  return tl::unexpected<error>(from_status(method, status));
}

void set_deadline(grpc::ClientContext& context) {
  // gpr_timespec, not a time_point: the deadline then runs on gRPC's monotonic clock.
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                    gpr_time_from_seconds(call_timeout.count(), GPR_TIMESPAN)));
}

result<void> ended(std::string_view method, const grpc::Status& status,
                   const pegaflow::ResponseStatus& answer) {
  if (!status.ok()) return refused(method, status);
  if (!answer.ok()) {
    return fail(errc::internal, fmt::format("{} answered ok=false: {}", method, answer.message()));
  }
  return {};
}

}  // namespace

struct engine_client::connection {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<pegaflow::Engine::Stub> stub;
};

struct engine_client::prepared_query::request {
  grpc::ByteBuffer bytes;  // serialised
};

struct engine_client::session::stream {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<pegaflow::SessionEvent>> reader;
};

engine_client::engine_client(std::unique_ptr<connection> open) : connection_(std::move(open)) {}
engine_client::~engine_client() = default;
engine_client::prepared_query::prepared_query() : request_(std::make_unique<request>()) {}
engine_client::prepared_query::prepared_query(prepared_query&&) noexcept = default;
engine_client::prepared_query::~prepared_query() = default;
engine_client::session::session() : stream_(std::make_unique<stream>()) {}
engine_client::session::session(session&&) noexcept = default;

engine_client::session::~session() {
  if (!stream_) return;
  stream_->context.TryCancel();
  stream_->reader->Finish();
}

result<std::unique_ptr<engine_client>> engine_client::connect(const std::string& address,
                                                              std::chrono::milliseconds timeout) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(limits::grpc_message_bytes_max);
  arguments.SetMaxSendMessageSize(limits::grpc_message_bytes_max);
  // Channels of equal arguments share a connection otherwise, and each client here plays an engine.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto open = std::make_unique<connection>();
  open->channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  const auto deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                     gpr_time_from_millis(timeout.count(), GPR_TIMESPAN));
  if (!open->channel->WaitForConnected(deadline)) {
    return fail(errc::unavailable, fmt::format("no Engine service answers at {} within {} ms",
                                               address, timeout.count()));
  }
  open->stub = pegaflow::Engine::NewStub(open->channel);
  return std::unique_ptr<engine_client>(new engine_client(std::move(open)));
}

result<void> engine_client::health() {
  grpc::ClientContext context;
  set_deadline(context);
  pegaflow::HealthResponse answer;
  const auto status = connection_->stub->Health(&context, pegaflow::HealthRequest{}, &answer);
  return ended("Health", status, answer.status());
}

result<void> engine_client::register_worker(const engine_worker& worker,
                                            const engine_topology& topology,
                                            std::span<const engine_layer> layers) {
  pegaflow::RegisterContextRequest request;
  request.set_instance_id(worker.instance_id);
  request.set_namespace_(topology.name_space);
  request.set_tp_rank(worker.tp_rank);
  request.set_tp_size(topology.tp_size);
  request.set_world_size(topology.world_size);
  request.set_device_id(worker.device_id);
  request.set_pp_rank(worker.pp_rank);
  request.set_page_first(topology.page_first);
  request.set_client_version("kvd " KVD_VERSION);
  for (const auto& layer : layers) {
    request.add_layer_names(layer.name);
    request.add_wrapper_bytes(layer.wrapper.data(), layer.wrapper.size());
    request.add_num_blocks(layer.num_blocks);
    request.add_bytes_per_block(layer.segment_bytes);
    request.add_kv_stride_bytes(layer.kv_stride_bytes);
    request.add_segments(layer.segments);
    request.add_layer_group_ids(layer.group_id);
  }
  grpc::ClientContext context;
  set_deadline(context);
  pegaflow::RegisterContextResponse answer;
  const auto status = connection_->stub->RegisterContextBatch(&context, request, &answer);
  return ended("RegisterContextBatch", status, answer.status());
}

result<void> engine_client::unregister(const std::string& instance_id) {
  pegaflow::UnregisterRequest request;
  request.set_instance_id(instance_id);
  grpc::ClientContext context;
  set_deadline(context);
  pegaflow::UnregisterResponse answer;
  const auto status = connection_->stub->UnregisterContext(&context, request, &answer);
  return ended("UnregisterContext", status, answer.status());
}

result<void> engine_client::save(const engine_worker& worker, const engine_save& blocks) {
  pegaflow::SaveRequest request;
  request.set_instance_id(worker.instance_id);
  request.set_tp_rank(worker.tp_rank);
  request.set_pp_rank(worker.pp_rank);
  request.set_device_id(worker.device_id);
  for (const auto& name : blocks.layers) {
    auto& layer = *request.add_saves();
    layer.set_layer_name(name);
    layer.mutable_block_ids()->Add(blocks.block_ids.begin(), blocks.block_ids.end());
    for (const auto& hash : blocks.hashes)
      layer.add_block_hashes(hash);
  }
  grpc::ClientContext context;
  set_deadline(context);
  pegaflow::SaveResponse answer;
  const auto status = connection_->stub->Save(&context, request, &answer);
  return ended("Save", status, answer.status());
}

result<void> engine_client::load(const engine_worker& worker, const engine_load& blocks) {
  pegaflow::LoadRequest request;
  request.set_instance_id(worker.instance_id);
  request.set_tp_rank(worker.tp_rank);
  request.set_device_id(worker.device_id);
  request.set_load_state_shm(std::string(blocks.flag));
  auto& group = *request.add_groups();
  for (const auto& name : blocks.layers)
    group.add_layer_names(name);
  auto& load = *request.add_loads();
  load.set_lease(std::string(blocks.lease));
  auto& targets = *load.add_block_ids_by_group();
  for (const auto id : blocks.block_ids)
    targets.add_targets()->set_block_id(id);
  grpc::ClientContext context;
  set_deadline(context);
  pegaflow::LoadResponse answer;
  const auto status = connection_->stub->Load(&context, request, &answer);
  return ended("Load", status, answer.status());
}

result<void> engine_client::release(std::string_view lease) {
  pegaflow::ReleaseRequest request;
  request.set_lease(std::string(lease));
  grpc::ClientContext context;
  set_deadline(context);
  pegaflow::ReleaseResponse answer;
  const auto status = connection_->stub->Release(&context, request, &answer);
  if (!status.ok()) return refused("Release", status);
  return {};
}

engine_client::prepared_query engine_client::prepare_query(const std::string& instance_id,
                                                           const std::string& req_id,
                                                           std::span<const std::string> hashes) {
  pegaflow::QueryRequest message;
  message.set_instance_id(instance_id);
  message.set_req_id(req_id);
  for (const auto& hash : hashes)
    message.add_block_hashes(hash);
  prepared_query prepared;
  const grpc::Slice bytes(message.SerializeAsString());
  prepared.request_->bytes = grpc::ByteBuffer(&bytes, 1);
  return prepared;
}

result<engine_answer> engine_client::query(const prepared_query& prepared) {
  grpc::ClientContext context;
  set_deadline(context);
  // The generated stub would serialise the message again in each call.
  grpc::CompletionQueue done;
  grpc::GenericStub stub(connection_->channel);
  const auto call = stub.PrepareUnaryCall(&context, query_method, prepared.request_->bytes, &done);
  grpc::ByteBuffer bytes;
  grpc::Status status;
  call->StartCall();
  call->Finish(&bytes, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  done.Next(&tag, &ok);
  if (!status.ok()) return refused("QueryPrefetch", status);
  pegaflow::QueryResponse answer;
  const auto parsed =
      grpc::SerializationTraits<pegaflow::QueryResponse>::Deserialize(&bytes, &answer);
  if (!parsed.ok()) return refused("QueryPrefetch", parsed);
  switch (answer.outcome_case()) {
  case pegaflow::QueryResponse::kLoading: return engine_answer{true, 0, {}};
  case pegaflow::QueryResponse::kReady:
    return engine_answer{false, answer.ready().num_hit_blocks(),
                         std::move(*answer.mutable_ready()->mutable_lease())};
  default: return fail(errc::internal, "QueryPrefetch answered neither ready nor loading");
  }
}

engine_client::session engine_client::open_session(const engine_worker& worker,
                                                   const engine_topology& topology) {
  pegaflow::SessionRequest request;
  request.set_instance_id(worker.instance_id);
  request.set_namespace_(topology.name_space);
  request.set_tp_size(topology.tp_size);
  request.set_world_size(topology.world_size);
  session opened;
  opened.stream_->reader = connection_->stub->Session(&opened.stream_->context, request);
  return opened;
}

}  // namespace kvd
