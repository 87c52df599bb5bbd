#include "transport/grpc/peer_client.hpp"

#include <algorithm>

#include "peer.grpc.pb.h"

#include "transport/grpc/call_set.hpp"
#include "transport/grpc/node_messages.hpp"

namespace kvd {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds hello_timeout{2'000};

class peer_client final : public peer_calls {
public:
  peer_client(const std::string& node, std::string self)
      : self_(std::move(self)), stub_(Peer::NewStub(open_channel(node))) {}
  ~peer_client() override { calls_.end(); }

  void hello(done<peer_hello> answer) override {
    HelloRequest request;
    request.set_boot_id(self_);
    calls_.start<HelloResponse>(
        "Hello", std::move(request), hello_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          stub_->async()->Hello(call, of, to, then);
        },
        [answer = std::move(answer)](result<HelloResponse> said) {
          if (!said) return answer(tl::unexpected(said.error()));
          answer(
              peer_hello{std::move(*said->mutable_boot_id()), std::move(*said->mutable_address())});
        });
  }

  void lock(peer_lock_request what, duration timeout, done<peer_lock> answer) override {
    LockRequest request;
    request.set_requester_boot_id(self_);
    request.set_boot_id(std::move(what.boot_id));
    request.set_namespace_(std::move(what.name_space));
    request.set_group(what.group);
    request.set_layout_low(what.fingerprint.low);
    request.set_layout_high(what.fingerprint.high);
    const auto asked = what.hashes.size();
    request.mutable_block_hashes()->Reserve(static_cast<int>(asked));
    for (auto& hash : what.hashes)
      *request.add_block_hashes() = std::move(hash);
    const auto until = std::max(std::chrono::duration_cast<milliseconds>(timeout), milliseconds(1));
    calls_.start<LockResponse>(
        "Lock", std::move(request), until,
        [this](auto* call, auto* of, auto* to, auto then) {
          stub_->async()->Lock(call, of, to, then);
        },
        [asked, answer = std::move(answer)](result<LockResponse> said) {
          if (!said) return answer(tl::unexpected(said.error()));
          answer(read_lock(std::move(*said), asked));
        });
  }

  void unlock(const std::string& session) override {
    UnlockRequest request;
    request.set_session_id(session);
    calls_.start<UnlockResponse>(
        "Unlock", std::move(request), hello_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          stub_->async()->Unlock(call, of, to, then);
        },
        [](const result<UnlockResponse>&) {});
  }

private:
  const std::string self_;
  std::unique_ptr<Peer::Stub> stub_;
  call_set calls_;  // last: its end waits for what uses the above
};

}  // namespace

std::unique_ptr<peer_calls> connect_peer(const std::string& node, const std::string& self) {
  return std::make_unique<peer_client>(node, self);
}

}  // namespace kvd
