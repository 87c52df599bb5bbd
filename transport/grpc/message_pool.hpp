#pragma once
// Request and response messages that are used again, so that ten thousand hashes do not cost ten
// thousand allocations a query: a cleared protobuf message keeps its strings' capacity.
//
// gRPC asks for a pair when a call arrives and releases it when the call is over. Bounded: a pair
// that grew beyond `kept_bytes_max`, or finds the pool full, is freed. Threads: any.

#include <memory>
#include <mutex>
#include <vector>

#include <grpcpp/support/message_allocator.h>

namespace kvd {

template<class Request, class Response>
class message_pool final : public grpc::MessageAllocator<Request, Response> {
public:
  static constexpr std::size_t kept_max = 64;
  // A query of 30,000 hashes; what is larger is rare and would only tie up memory.
  static constexpr std::size_t kept_bytes_max = 1 << 20;

  message_pool() { free_.reserve(kept_max); }
  ~message_pool() override {
    for (auto* each : free_)
      delete each;
  }

  grpc::MessageHolder<Request, Response>* AllocateMessages() override {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto* pair = free_.back();
        free_.pop_back();
        return pair;
      }
    }
    return new messages(*this);
  }

private:
  class messages final : public grpc::MessageHolder<Request, Response> {
  public:
    explicit messages(message_pool& home) : home_(home) {
      this->set_request(&request_);
      this->set_response(&response_);
    }
    void Release() override { home_.take_back(this); }
    std::size_t bytes() const { return request_.ByteSizeLong() + response_.ByteSizeLong(); }
    void clear() {
      request_.Clear();
      response_.Clear();
    }

  private:
    message_pool& home_;
    Request request_;
    Response response_;
  };

  void take_back(messages* pair) {
    const bool keep = pair->bytes() <= kept_bytes_max;
    if (keep) {
      pair->clear();
      const std::lock_guard lock(mutex_);
      if (free_.size() < kept_max) {
        free_.push_back(pair);
        return;
      }
    }
    delete pair;
  }

  std::mutex mutex_;             // a pointer moves; taken twice a call
  std::vector<messages*> free_;  // GUARDED_BY(mutex_), owned
};

}  // namespace kvd
