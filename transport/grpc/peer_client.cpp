#include "transport/grpc/peer_client.hpp"

#include <algorithm>
#include <limits>

#include "peer.grpc.pb.h"

#include "transport/grpc/call_set.hpp"

namespace kvd {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds hello_timeout{2'000};

// The answer of a node that may be broken: whatever does not add up is refused as a whole.
result<peer_lock> read_lock(LockResponse&& answer, std::size_t asked) {
  const auto broken = [](std::string_view why) {
    return fail(errc::internal, fmt::format("Lock was answered with {}", why));
  };
  peer_lock out;
  out.session = std::move(*answer.mutable_session_id());
  out.timeout = milliseconds(answer.lock_timeout_ms());
  out.positions.assign(answer.positions().begin(), answer.positions().end());
  std::uint64_t next = 0;
  for (const auto position : out.positions) {
    if (position < next || position >= asked) return broken("positions out of order");
    next = std::uint64_t{position} + 1;
  }
  if (out.positions.empty() != answer.steps().empty() ||
      (!out.positions.empty() &&
       static_cast<std::size_t>(answer.steps_size()) % out.positions.size() != 0)) {
    return broken("another number of parts than of blocks");
  }
  out.units.reserve(static_cast<std::size_t>(answer.steps_size()));
  std::int64_t unit = 0;
  for (const auto step : answer.steps()) {
    constexpr std::int64_t unit_max = std::numeric_limits<std::uint32_t>::max();
    if (step < -unit_max || step > unit_max) return broken("a place outside of any pool");
    unit += step;
    if (unit < 0 || unit > unit_max) return broken("a place outside of any pool");
    out.units.push_back(static_cast<std::uint32_t>(unit));
  }
  return out;
}

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
