#pragma once
// gRPC calls that are on their way, so that their owner can end them all and wait for it.
//
// Threads: any; the destructor waits for the callbacks that run, so it must not be called in one.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "core/error.hpp"
#include "transport/grpc/status.hpp"

namespace kvd {

// A channel with kvd's limits and its own connection, which is given up after half a second and
// tried anew every two at most.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address);

class call_set {
public:
  call_set() = default;
  call_set(const call_set&) = delete;
  call_set& operator=(const call_set&) = delete;
  // Cancels what is on its way, and waits until it was answered.
  ~call_set() { end(); }

  void end() {
    std::unique_lock lock(mutex_);
    ended_ = true;
    for (auto* each : running_)
      each->TryCancel();
    over_.wait(lock, [this] { return running_.empty(); });
  }

  // Starts a call by `begin(context, request, response, callback)`. `done` gets the response or an
  // error; cancelled at once when the set has ended.
  template<class Response, class Request, class Begin, class Done>
  void start(std::string_view method, Request request, std::chrono::milliseconds timeout,
             Begin begin, Done done) {
    struct call {
      grpc::ClientContext context;
      Request request;
      Response response;
      Done done;
      call(Request what, Done then) : request(std::move(what)), done(std::move(then)) {}
    };
    auto one = std::make_unique<call>(std::move(request), std::move(done));
    // gpr_timespec, not a time_point: the deadline then runs on gRPC's monotonic clock.
    one->context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                           gpr_time_from_millis(timeout.count(), GPR_TIMESPAN)));
    bool late = false;
    {
      const std::lock_guard lock(mutex_);
      late = ended_;
      if (!late) running_.insert(&one->context);
    }
    if (late) {
      one->done(result<Response>(
          fail(errc::cancelled, fmt::format("{} was not sent: stopping", method))));
      return;
    }
    auto* const raw = one.release();
    begin(&raw->context, &raw->request, &raw->response, [this, raw, method](grpc::Status status) {
      std::unique_ptr<call> over(raw);
      if (status.ok()) {
        over->done(result<Response>(std::move(over->response)));
      } else {
        over->done(result<Response>(tl::unexpected<error>(from_status(method, status))));
      }
      const std::lock_guard lock(mutex_);
      running_.erase(&over->context);
      over_.notify_all();
    });
  }

private:
  std::mutex mutex_;
  std::condition_variable over_;
  std::unordered_set<grpc::ClientContext*> running_;  // GUARDED_BY(mutex_)
  bool ended_ = false;                                // GUARDED_BY(mutex_)
};

}  // namespace kvd
