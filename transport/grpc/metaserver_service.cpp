#include "transport/grpc/metaserver_service.hpp"

#include <vector>

#include <absl/synchronization/mutex.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "metaserver.grpc.pb.h"
#include "peer.grpc.pb.h"

#include "core/limits.hpp"
#include "memory/directory_digest.hpp"
#include "transport/grpc/message_pool.hpp"
#include "transport/grpc/status.hpp"

namespace kvd {

namespace {

using directory_context = grpc::CallbackServerContext;
using directory_reactor = grpc::ServerUnaryReactor;
using repeated_hashes = google::protobuf::RepeatedPtrField<std::string>;

// HTTP/2 flow control of one stream, and its largest frame: a query of 1,000 hashes is 34 KB, an
// insert of 16,384 is 560 KB.
constexpr int directory_window_bytes = 4 << 20;
constexpr int directory_frame_bytes = 1 << 20;

constexpr const char* no_hashes = "block_hashes cannot be empty";

block_hashes as_block_hashes(const repeated_hashes& hashes) {
  return {hashes.data(), static_cast<std::size_t>(hashes.size())};
}

template<class Request>
node_session session_of(const Request& request) {
  return {request.node(), request.node_id()};
}

// Refusals of a node's words carry PegaFlow's bare texts.
grpc::Status directory_status(const error& failure) {
  if (failure.code == errc::invalid_argument) {
    return {grpc::StatusCode::INVALID_ARGUMENT, failure.detail};
  }
  return to_status(failure);
}

grpc::Status check_namespace(std::string_view name) {
  if (name.size() <= limits::id_bytes_max) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT,
          fmt::format("namespace has {} bytes, limit {}", name.size(), limits::id_bytes_max)};
}

void set_done(pegaflow::ResponseStatus* status) {
  status->set_ok(true);
}

// Runs the bodies of both services, counted, on the thread where they belong.
class directory_calls {
public:
  explicit directory_calls(directory_plane plane) : plane_(std::move(plane)) {}

  // `body` returns the status; the messages live until Finish.
  template<class Body>
  directory_reactor* run(directory_context* call, directory_method method, Body body) {
    auto* reply = call->DefaultReactor();
    const auto started = plane_.time.now();
    auto work = [this, call, reply, method, started, body = std::move(body)] {
      const auto status = call->IsCancelled() ? grpc::Status(grpc::StatusCode::CANCELLED,
                                                             "the deadline passed before the start")
                                              : body();
      finish(reply, method, started, status);
    };
    if (!plane_.elsewhere) {
      work();
    } else if (!plane_.elsewhere(std::move(work))) {
      finish(reply, method, started,
             {grpc::StatusCode::UNAVAILABLE, "too many calls wait for the store"});
    }
    return reply;
  }

  directory& store() noexcept { return plane_.store; }
  metaserver_metrics& metrics() noexcept { return plane_.metrics; }
  std::chrono::seconds stale_after() const noexcept { return plane_.stale_after; }

private:
  void finish(directory_reactor* reply, directory_method method, time_point started,
              const grpc::Status& status) {
    const auto at = static_cast<std::size_t>(method);
    auto& rpc = plane_.metrics.rpc;
    rpc.requests[at][static_cast<std::size_t>(status.error_code()) % rpc.statuses].add();
    const double took = std::chrono::duration<double>(plane_.time.now() - started).count();
    (status.ok() ? rpc.seconds[at].ok : rpc.seconds[at].error).observe(took);
    reply->Finish(status);
  }

  directory_plane plane_;
};

class metaserver_service final : public pegaflow::MetaServer::CallbackService {
public:
  explicit metaserver_service(directory_calls& calls) : calls_(calls) {
    SetMessageAllocatorFor_InsertBlockHashes(&insert_messages_);
    SetMessageAllocatorFor_RemoveBlockHashes(&remove_messages_);
    SetMessageAllocatorFor_QueryPrefixBlocks(&query_messages_);
  }

  directory_reactor* HeartbeatNode(directory_context* call,
                                   const pegaflow::HeartbeatNodeRequest* request,
                                   pegaflow::HeartbeatNodeResponse* response) override {
    return calls_.run(call, directory_method::heartbeat_node, [this, request, response] {
      const auto outcome = calls_.store().heartbeat(session_of(*request));
      if (!outcome) return directory_status(outcome.error());
      response->set_stale_after_secs(static_cast<std::uint64_t>(calls_.stale_after().count()));
      return grpc::Status::OK;
    });
  }

  directory_reactor* UnregisterNode(directory_context* call,
                                    const pegaflow::UnregisterNodeRequest* request,
                                    pegaflow::UnregisterNodeResponse* response) override {
    return calls_.run(call, directory_method::unregister_node, [this, request, response] {
      const auto outcome = calls_.store().unregister(session_of(*request));
      if (!outcome) return directory_status(outcome.error());
      response->set_removed_owners(*outcome);
      return grpc::Status::OK;
    });
  }

  directory_reactor* InsertBlockHashes(directory_context* call,
                                       const pegaflow::InsertBlockHashesRequest* request,
                                       pegaflow::InsertBlockHashesResponse* response) override {
    return calls_.run(call, directory_method::insert_block_hashes,
                      [this, request, response] { return insert(*request, *response); });
  }

  directory_reactor* RemoveBlockHashes(directory_context* call,
                                       const pegaflow::RemoveBlockHashesRequest* request,
                                       pegaflow::RemoveBlockHashesResponse* response) override {
    return calls_.run(call, directory_method::remove_block_hashes, [this, request, response] {
      if (request->block_hashes().empty()) {
        response->mutable_status()->set_message(no_hashes);
        return grpc::Status::OK;
      }
      const auto outcome = calls_.store().remove(session_of(*request), request->namespace_(),
                                                 as_block_hashes(request->block_hashes()));
      if (!outcome) return directory_status(outcome.error());
      calls_.metrics().removed.add(*outcome);
      set_done(response->mutable_status());
      response->set_removed_count(*outcome);
      return grpc::Status::OK;
    });
  }

  directory_reactor* QueryPrefixBlocks(directory_context* call,
                                       const pegaflow::QueryPrefixBlocksRequest* request,
                                       pegaflow::QueryPrefixBlocksResponse* response) override {
    return calls_.run(call, directory_method::query_prefix_blocks, [this, request, response] {
      if (request->block_hashes().empty()) {
        return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, no_hashes);
      }
      auto outcome = calls_.store().query_prefix(request->namespace_(),
                                                 as_block_hashes(request->block_hashes()));
      if (!outcome) return directory_status(outcome.error());
      calls_.metrics().queried.add(static_cast<std::uint64_t>(request->block_hashes_size()));
      for (auto& each : *outcome) {
        auto* node = response->add_nodes();
        node->set_node(std::move(each.node));
        node->set_prefix_len(each.length);
      }
      return grpc::Status::OK;
    });
  }

private:
  grpc::Status insert(const pegaflow::InsertBlockHashesRequest& request,
                      pegaflow::InsertBlockHashesResponse& response) {
    if (request.block_hashes().empty()) {
      response.mutable_status()->set_message(no_hashes);
      return grpc::Status::OK;
    }
    if (auto valid = check_namespace(request.namespace_()); !valid.ok()) return valid;
    const auto outcome = calls_.store().insert(session_of(request), request.namespace_(),
                                               as_block_hashes(request.block_hashes()));
    if (!outcome) return directory_status(outcome.error());
    const auto count = static_cast<std::uint64_t>(request.block_hashes_size());
    calls_.metrics().inserted.add(count);
    calls_.metrics().reclaimable.add(outcome->reclaimable.size());
    set_done(response.mutable_status());
    response.set_inserted_count(count);
    for (const auto at : outcome->reclaimable)
      response.add_reclaimable_hashes(request.block_hashes(static_cast<int>(at)));
    return grpc::Status::OK;
  }

  directory_calls& calls_;
  message_pool<pegaflow::InsertBlockHashesRequest, pegaflow::InsertBlockHashesResponse>
      insert_messages_;
  message_pool<pegaflow::RemoveBlockHashesRequest, pegaflow::RemoveBlockHashesResponse>
      remove_messages_;
  message_pool<pegaflow::QueryPrefixBlocksRequest, pegaflow::QueryPrefixBlocksResponse>
      query_messages_;
};

class directory_service final : public Directory::CallbackService {
public:
  explicit directory_service(directory_calls& calls) : calls_(calls) {
    SetMessageAllocatorFor_Locate(&locate_messages_);
    SetMessageAllocatorFor_Compare(&compare_messages_);
  }

  directory_reactor* Describe(directory_context* call, const DescribeRequest*,
                              DescribeResponse* response) override {
    return calls_.run(call, directory_method::describe, [this, response] {
      response->set_directory_id(calls_.store().id());
      response->set_stale_after_secs(static_cast<std::uint64_t>(calls_.stale_after().count()));
      response->set_buckets(directory_digest::bucket_count);
      return grpc::Status::OK;
    });
  }

  directory_reactor* Locate(directory_context* call, const LocateRequest* request,
                            LocateResponse* response) override {
    return calls_.run(call, directory_method::locate, [this, request, response] {
      if (request->block_hashes().empty()) {
        return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, no_hashes);
      }
      auto outcome =
          calls_.store().locate(request->namespace_(), as_block_hashes(request->block_hashes()),
                                request->except_node(), request->over_gaps());
      if (!outcome) return directory_status(outcome.error());
      calls_.metrics().queried.add(static_cast<std::uint64_t>(request->block_hashes_size()));
      for (auto& each : outcome->nodes)
        response->add_nodes(std::move(each));
      for (const auto& each : outcome->runs) {
        auto* run = response->add_runs();
        run->set_first(each.first);
        run->set_count(each.count);
        run->mutable_owners()->Assign(each.owners.begin(), each.owners.end());
      }
      return grpc::Status::OK;
    });
  }

  directory_reactor* Compare(directory_context* call, const CompareRequest* request,
                             CompareResponse* response) override {
    return calls_.run(call, directory_method::compare, [this, request, response] {
      const auto& digests = request->digests();
      const auto outcome = calls_.store().compare(
          session_of(*request), {digests.data(), static_cast<std::size_t>(digests.size())});
      if (!outcome) return directory_status(outcome.error());
      calls_.metrics().differing_buckets.add(outcome->size());
      response->mutable_differing()->Assign(outcome->begin(), outcome->end());
      return grpc::Status::OK;
    });
  }

  directory_reactor* Replace(directory_context* call, const ReplaceRequest* request,
                             ReplaceResponse* response) override {
    return calls_.run(call, directory_method::replace,
                      [this, request, response] { return replace(*request, *response); });
  }

private:
  grpc::Status replace(const ReplaceRequest& request, ReplaceResponse& response) {
    std::vector<namespace_blocks> blocks;
    for (const auto& each : request.blocks()) {
      if (auto valid = check_namespace(each.namespace_()); !valid.ok()) return valid;
      blocks.push_back({each.namespace_(), as_block_hashes(each.block_hashes())});
    }
    const auto& buckets = request.buckets();
    const auto outcome = calls_.store().replace(
        session_of(request), {buckets.data(), static_cast<std::size_t>(buckets.size())}, blocks);
    if (!outcome) return directory_status(outcome.error());
    calls_.metrics().replaced_added.add(outcome->inserted);
    calls_.metrics().replaced_removed.add(outcome->removed);
    response.set_inserted(outcome->inserted);
    response.set_removed(outcome->removed);
    return grpc::Status::OK;
  }

  directory_calls& calls_;
  message_pool<LocateRequest, LocateResponse> locate_messages_;
  message_pool<CompareRequest, CompareResponse> compare_messages_;
};

class running_metaserver final : public metaserver_server {
public:
  explicit running_metaserver(directory_plane plane)
      : calls_(std::move(plane)), metaserver_(calls_), directory_(calls_) {}
  ~running_metaserver() override { stop(0); }

  result<void> bind(const std::string& address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&metaserver_);
    builder.RegisterService(&directory_);
    builder.SetMaxReceiveMessageSize(limits::grpc_message_bytes_max);
    builder.SetMaxSendMessageSize(limits::grpc_message_bytes_max);
    // Two servers on one port would share its clients at random; the second must fail instead.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Clients ping when they like, also while nothing is asked; grpc's default takes that for
    // abuse.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, directory_window_bytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, directory_frame_bytes);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return fail(errc::io, fmt::format("cannot listen on {}: is another server there?", address));
    }
    port_ = static_cast<std::uint16_t>(port);
    return {};
  }

  std::uint16_t port() const noexcept override { return port_; }

  void stop(unsigned grace_ms) override {
    if (server_ == nullptr || stopped_.exchange(true)) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(grace_ms));
    server_->Wait();
  }

private:
  directory_calls calls_;
  metaserver_service metaserver_;
  directory_service directory_;
  std::unique_ptr<grpc::Server> server_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace

result<std::unique_ptr<metaserver_server>> metaserver_server::start(const std::string& address,
                                                                    directory_plane plane) {
  // Debian builds abseil with its search for deadlocks: a global lock and a graph, for each mutex
  // that gRPC takes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  auto server = std::make_unique<running_metaserver>(std::move(plane));
  if (auto bound = server->bind(address); !bound) return tl::unexpected(bound.error());
  return server;
}

}  // namespace kvd
