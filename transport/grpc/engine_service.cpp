#include "transport/grpc/engine_service.hpp"

#include <absl/synchronization/mutex.h>
#include <grpcpp/grpcpp.h>

#include <fmt/format.h>

#include "engine.grpc.pb.h"

#include "core/limits.hpp"
#include "core/log.hpp"
#include "transport/engine/registration.hpp"
#include "transport/grpc/message_pool.hpp"
#include "transport/grpc/peer_service.hpp"
#include "transport/grpc/status.hpp"

namespace kvd {

namespace {

// HTTP/2 flow control of one stream, and its largest frame.
constexpr int receive_window_bytes = 4 << 20;
constexpr int receive_frame_bytes = 1 << 20;

using context = grpc::CallbackServerContext;
using reactor = grpc::ServerUnaryReactor;

// Counts one call when it is answered.
class call_timer {
public:
  call_timer(rpc_metrics& metrics, const clock& time, engine_method method)
      : metrics_(&metrics), clock_(&time), method_(static_cast<std::size_t>(method)),
        started_(time.now()) {}
  void answered(grpc::StatusCode code) const noexcept {
    const auto at = static_cast<std::size_t>(code) % rpc_metrics::statuses;
    metrics_->requests[method_][at].add();
    const double took = std::chrono::duration<double>(clock_->now() - started_).count();
    auto& seconds = metrics_->seconds[method_];
    (code == grpc::StatusCode::OK ? seconds.ok : seconds.error).observe(took);
  }

private:
  rpc_metrics* metrics_;
  const clock* clock_;
  std::size_t method_;
  time_point started_;
};

reactor* answer(context* call, const call_timer& timer, const grpc::Status& status) {
  timer.answered(status.error_code());
  auto* reply = call->DefaultReactor();
  reply->Finish(status);
  return reply;
}

void set_ok(pegaflow::ResponseStatus* status, std::string message) {
  status->set_ok(true);
  status->set_message(std::move(message));
}

error draining_error() {
  return {errc::unavailable, "the server is draining"};
}

error instance_error(const std::string& id) {
  return {errc::instance_missing, fmt::format("instance {} not found", id)};
}

// One Save under way: answers its call when the blocks are stored.
struct save_call final : save_waiter {
  job_pool<save_call>* pool = nullptr;
  reactor* reply = nullptr;
  pegaflow::SaveResponse* response = nullptr;
  std::optional<call_timer> timer;

  void saved(result<std::string> outcome) noexcept override {
    auto status = grpc::Status::OK;
    if (outcome) {
      set_ok(response->mutable_status(), std::move(*outcome));
    } else {
      status = to_status(outcome.error());
    }
    timer->answered(status.error_code());
    auto* to = reply;
    pool->give_back(this);
    to->Finish(status);
  }
};

// Open for as long as the client lives. Its end, however it comes, ends the session.
class session_stream final : public grpc::ServerWriteReactor<pegaflow::SessionEvent> {
public:
  session_stream(engine_control& control, std::string instance_id, std::uint64_t token)
      : control_(control), instance_id_(std::move(instance_id)), token_(token) {
    // The client's constructor waits for the headers, so they go out at once.
    StartSendInitialMetadata();
    control_.session_opened(instance_id_, token_);
  }
  void OnCancel() override {
    if (!finished_.exchange(true)) Finish(grpc::Status::CANCELLED);
  }
  void OnSendInitialMetadataDone(bool ok) override {
    if (!ok) OnCancel();
  }
  void OnDone() override {
    control_.session_closed(instance_id_, token_);
    delete this;  // gRPC's reactors end themselves
  }

private:
  engine_control& control_;
  std::string instance_id_;
  std::uint64_t token_;
  std::atomic<bool> finished_{false};
};

// A stream that is refused at once.
class refused_stream final : public grpc::ServerWriteReactor<pegaflow::SessionEvent> {
public:
  explicit refused_stream(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

class service final : public pegaflow::Engine::CallbackService {
public:
  explicit service(engine_plane plane) : plane_(std::move(plane)), saves_(limits::copy_jobs_max) {
    SetMessageAllocatorFor_QueryPrefetch(&query_messages_);
    SetMessageAllocatorFor_Save(&save_messages_);
    SetMessageAllocatorFor_Load(&load_messages_);
  }

  reactor* RegisterContextBatch(context* call, const pegaflow::RegisterContextRequest* request,
                                pegaflow::RegisterContextResponse* response) override {
    const auto timer = start(engine_method::register_context_batch);
    if (plane_.draining.load()) return answer(call, timer, to_status(draining_error()));
    if (auto valid = validate(*request); !valid) {
      return answer(call, timer, to_status(valid.error()));
    }
    auto* reply = call->DefaultReactor();
    plane_.control.register_worker(*request, control_answer(reply, timer, response));
    return reply;
  }

  reactor* UnregisterContext(context* call, const pegaflow::UnregisterRequest* request,
                             pegaflow::UnregisterResponse* response) override {
    const auto timer = start(engine_method::unregister_context);
    auto* reply = call->DefaultReactor();
    plane_.control.unregister(request->instance_id(), control_answer(reply, timer, response));
    return reply;
  }

  reactor* Save(context* call, const pegaflow::SaveRequest* request,
                pegaflow::SaveResponse* response) override {
    const auto timer = start(engine_method::save);
    if (plane_.draining.load()) return answer(call, timer, to_status(draining_error()));
    auto running = begin(request->instance_id());
    if (!running) return answer(call, timer, to_status(running.error()));
    auto* waiting = saves_.take();
    if (waiting == nullptr) {
      return answer(call, timer, to_status({errc::limit_exceeded, "too many saves are under way"}));
    }
    waiting->pool = &saves_;
    waiting->reply = call->DefaultReactor();
    waiting->response = response;
    waiting->timer = timer;
    auto* reply = waiting->reply;
    plane_.saves.start(std::move(*running), *request, *waiting);
    return reply;
  }

  reactor* Load(context* call, const pegaflow::LoadRequest* request,
                pegaflow::LoadResponse* response) override {
    const auto timer = start(engine_method::load);
    const auto outcome = load(*request);
    if (!outcome) return answer(call, timer, to_status(outcome.error()));
    set_ok(response->mutable_status(), {});
    return answer(call, timer, grpc::Status::OK);
  }

  reactor* QueryPrefetch(context* call, const pegaflow::QueryRequest* request,
                         pegaflow::QueryResponse* response) override {
    const auto timer = start(engine_method::query_prefetch);
    if (plane_.draining.load()) return answer(call, timer, to_status(draining_error()));
    // An instance that ends meanwhile waits for this query, and then takes its lease away.
    const auto running = begin(request->instance_id());
    if (!running) return answer(call, timer, to_status(running.error()));
    const auto outcome = plane_.queries.query(running->of(), *request, *response);
    if (!outcome) return answer(call, timer, to_status(outcome.error()));
    return answer(call, timer, grpc::Status::OK);
  }

  reactor* Release(context* call, const pegaflow::ReleaseRequest* request,
                   pegaflow::ReleaseResponse*) override {
    const auto timer = start(engine_method::release);
    if (request->lease().size() != sizeof(lease_id)) {
      return answer(call, timer,
                    to_status({errc::invalid_argument,
                               fmt::format("query lease id must be {} bytes, got {}",
                                           sizeof(lease_id), request->lease().size())}));
    }
    const auto outcome = plane_.leases.release(request->lease());
    return answer(call, timer, outcome ? grpc::Status::OK : to_status(outcome.error()));
  }

  reactor* QueryBlocksForTransfer(context* call, const pegaflow::QueryBlocksForTransferRequest*,
                                  pegaflow::QueryBlocksForTransferResponse*) override {
    return answer(call, start(engine_method::query_blocks_for_transfer), no_peers());
  }

  reactor* RdmaHandshake(context* call, const pegaflow::RdmaHandshakeRequest*,
                         pegaflow::RdmaHandshakeResponse*) override {
    return answer(call, start(engine_method::rdma_handshake), no_peers());
  }

  reactor* ReleaseTransferLock(context* call, const pegaflow::ReleaseTransferLockRequest*,
                               pegaflow::ReleaseTransferLockResponse* response) override {
    // Nobody can hold a transfer lock here, and an unknown one is no error on this wire.
    set_ok(response->mutable_status(), {});
    return answer(call, start(engine_method::release_transfer_lock), grpc::Status::OK);
  }

  reactor* Shutdown(context* call, const pegaflow::ShutdownRequest*,
                    pegaflow::ShutdownResponse* response) override {
    set_ok(response->mutable_status(), {});
    auto* reply = answer(call, start(engine_method::shutdown), grpc::Status::OK);
    log::info("grpc", "shutdown was asked for by {}", call->peer());
    plane_.control.shutdown();
    return reply;
  }

  reactor* Health(context* call, const pegaflow::HealthRequest*,
                  pegaflow::HealthResponse* response) override {
    // A client that sees another boot id knows that its registration is gone.
    call->AddInitialMetadata("kvd-boot-id", plane_.boot_id);
    set_ok(response->mutable_status(), {});
    return answer(call, start(engine_method::health), grpc::Status::OK);
  }

  grpc::ServerWriteReactor<pegaflow::SessionEvent>*
  Session(context*, const pegaflow::SessionRequest* request) override {
    if (request->instance_id().empty() || request->instance_id().size() > limits::id_bytes_max) {
      return new refused_stream(
          to_status({errc::invalid_argument,
                     fmt::format("instance_id has {} bytes; 1 to {} are allowed",
                                 request->instance_id().size(), limits::id_bytes_max)}));
    }
    return new session_stream(plane_.control, request->instance_id(), ++session_token_);
  }

private:
  call_timer start(engine_method method) { return {plane_.metrics, plane_.time, method}; }

  static grpc::Status no_peers() {
    return to_status({errc::not_configured, "RDMA transfer engine is not configured"});
  }

  result<operation> begin(const std::string& instance_id) {
    auto of = plane_.instances.find(instance_id);
    if (!of) return tl::unexpected(instance_error(instance_id));
    return operation::begin(std::move(of));
  }

  result<void> load(const pegaflow::LoadRequest& request) {
    if (auto leases = load_path::check_leases(request); !leases) return leases;
    auto flag = load_state::attach(request.load_state_shm());
    if (!flag) return tl::unexpected(flag.error());
    auto running = begin(request.instance_id());
    if (!running) {
      flag->publish(-1);
      return tl::unexpected(running.error());
    }
    return plane_.loads.start(std::move(*running), request, std::move(*flag));
  }

  template<class Response>
  engine_control::done control_answer(reactor* reply, call_timer timer, Response* response) {
    return [reply, timer, response](const result<void>& outcome) {
      auto status = grpc::Status::OK;
      if (outcome) {
        set_ok(response->mutable_status(), {});
      } else {
        status = to_status(outcome.error());
      }
      timer.answered(status.error_code());
      reply->Finish(status);
    };
  }

  message_pool<pegaflow::QueryRequest, pegaflow::QueryResponse> query_messages_;
  message_pool<pegaflow::SaveRequest, pegaflow::SaveResponse> save_messages_;
  message_pool<pegaflow::LoadRequest, pegaflow::LoadResponse> load_messages_;
  engine_plane plane_;
  job_pool<save_call> saves_;
  std::atomic<std::uint64_t> session_token_{0};
};

class running_server final : public engine_server {
public:
  explicit running_server(engine_plane plane)
      : peers_(plane.transfers), service_(std::move(plane)) {}
  ~running_server() override { stop(0); }

  result<void> bind(const std::string& address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    builder.RegisterService(&peers_);
    builder.SetMaxReceiveMessageSize(limits::grpc_message_bytes_max);
    builder.SetMaxSendMessageSize(limits::grpc_message_bytes_max);
    // Two servers on one port would share its clients at random; the second must fail instead.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // The stock client pings every 5 s even when idle; grpc's default takes that for abuse, and its
    // GOAWAY would end the session and with it the instance.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    // A query of 10,000 hashes is 340 KB: with the default window of 64 KB it would wait for the
    // client's acknowledgements several times.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, receive_window_bytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, receive_frame_bytes);
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
  peer_service peers_;
  service service_;
  std::unique_ptr<grpc::Server> server_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace

result<std::unique_ptr<engine_server>> engine_server::start(const std::string& address,
                                                            engine_plane plane) {
  // Debian builds abseil with its search for deadlocks: a global lock and a graph, for each mutex
  // that gRPC takes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  auto server = std::make_unique<running_server>(std::move(plane));
  if (auto bound = server->bind(address); !bound) return tl::unexpected(bound.error());
  return server;
}

}  // namespace kvd
