#include "transport/grpc/metaserver_client.hpp"

#include <algorithm>
#include <utility>

#include "metaserver.grpc.pb.h"
#include "peer.grpc.pb.h"

#include "core/limits.hpp"
#include "transport/grpc/call_set.hpp"
#include "transport/grpc/node_messages.hpp"

namespace kvd {

namespace {

using std::chrono::milliseconds;

// A heartbeat or a question takes a millisecond, a call of 16,384 hashes some.
constexpr milliseconds short_timeout{2'000};
constexpr milliseconds bulk_timeout{10'000};
// A directory that says it is anything else is not ours.
constexpr std::int64_t stale_seconds_max = 24 * 3600;

std::chrono::seconds stale_of(std::uint64_t seconds) {
  return std::chrono::seconds(
      std::clamp<std::int64_t>(static_cast<std::int64_t>(seconds), 1, stale_seconds_max));
}

void put(google::protobuf::RepeatedPtrField<std::string>* to, std::vector<std::string>& hashes) {
  to->Reserve(static_cast<int>(hashes.size()));
  for (auto& hash : hashes)
    *to->Add() = std::move(hash);
}

result<void> accepted(std::string_view method, const pegaflow::ResponseStatus& status) {
  if (status.ok()) return {};
  return fail(errc::internal, fmt::format("{} answered ok=false: {}", method, status.message()));
}

class metaserver_client final : public directory_link {
public:
  metaserver_client(const std::string& address, metaserver_identity self)
      : address_(address), self_(std::move(self)), quick_(open_channel(address)),
        bulk_(open_channel(address)), quick_meta_(pegaflow::MetaServer::NewStub(quick_)),
        bulk_meta_(pegaflow::MetaServer::NewStub(bulk_)), quick_ours_(Directory::NewStub(quick_)),
        bulk_ours_(Directory::NewStub(bulk_)) {}
  ~metaserver_client() override { calls_.end(); }

  const std::string& address() const noexcept override { return address_; }

  void describe(directory_done<directory_facts> done) override {
    calls_.start<DescribeResponse>(
        "Describe", DescribeRequest(), short_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          quick_ours_->async()->Describe(call, of, to, then);
        },
        [done = std::move(done)](result<DescribeResponse> answer) {
          if (!answer) return done(tl::unexpected(answer.error()));
          done(directory_facts{answer->directory_id(), stale_of(answer->stale_after_secs())});
        });
  }

  void heartbeat(directory_done<std::chrono::seconds> done) override {
    calls_.start<pegaflow::HeartbeatNodeResponse>(
        "HeartbeatNode", signed_by_us<pegaflow::HeartbeatNodeRequest>(), short_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          quick_meta_->async()->HeartbeatNode(call, of, to, then);
        },
        [done = std::move(done)](result<pegaflow::HeartbeatNodeResponse> answer) {
          if (!answer) return done(tl::unexpected(answer.error()));
          done(stale_of(answer->stale_after_secs()));
        });
  }

  void farewell(directory_done<void> done) override {
    calls_.start<pegaflow::UnregisterNodeResponse>(
        "UnregisterNode", signed_by_us<pegaflow::UnregisterNodeRequest>(), short_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          quick_meta_->async()->UnregisterNode(call, of, to, then);
        },
        [done = std::move(done)](result<pegaflow::UnregisterNodeResponse> answer) {
          if (!answer) return done(tl::unexpected(answer.error()));
          done({});
        });
  }

  void insert(named_blocks blocks, directory_done<std::vector<std::string>> done) override {
    auto request = signed_by_us<pegaflow::InsertBlockHashesRequest>();
    request.set_namespace_(std::move(blocks.name));
    put(request.mutable_block_hashes(), blocks.hashes);
    calls_.start<pegaflow::InsertBlockHashesResponse>(
        "InsertBlockHashes", std::move(request), bulk_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          bulk_meta_->async()->InsertBlockHashes(call, of, to, then);
        },
        [done = std::move(done)](result<pegaflow::InsertBlockHashesResponse> answer) {
          if (!answer) return done(tl::unexpected(answer.error()));
          if (auto taken = accepted("InsertBlockHashes", answer->status()); !taken)
            return done(tl::unexpected(taken.error()));
          done(std::vector<std::string>(answer->reclaimable_hashes().begin(),
                                        answer->reclaimable_hashes().end()));
        });
  }

  void remove(named_blocks blocks, directory_done<void> done) override {
    auto request = signed_by_us<pegaflow::RemoveBlockHashesRequest>();
    request.set_namespace_(std::move(blocks.name));
    put(request.mutable_block_hashes(), blocks.hashes);
    calls_.start<pegaflow::RemoveBlockHashesResponse>(
        "RemoveBlockHashes", std::move(request), bulk_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          bulk_meta_->async()->RemoveBlockHashes(call, of, to, then);
        },
        [done = std::move(done)](result<pegaflow::RemoveBlockHashesResponse> answer) {
          if (!answer) return done(tl::unexpected(answer.error()));
          done(accepted("RemoveBlockHashes", answer->status()));
        });
  }

  void compare(std::span<const std::uint64_t> digests,
               directory_done<std::vector<std::uint32_t>> done) override {
    auto request = signed_by_us<CompareRequest>();
    request.mutable_digests()->Add(digests.begin(), digests.end());
    calls_.start<CompareResponse>(
        "Compare", std::move(request), bulk_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          bulk_ours_->async()->Compare(call, of, to, then);
        },
        [done = std::move(done)](result<CompareResponse> answer) {
          if (!answer) return done(tl::unexpected(answer.error()));
          done(std::vector<std::uint32_t>(answer->differing().begin(), answer->differing().end()));
        });
  }

  void replace(std::vector<std::uint32_t> buckets, std::vector<named_blocks> blocks,
               directory_done<void> done) override {
    auto request = signed_by_us<ReplaceRequest>();
    request.mutable_buckets()->Add(buckets.begin(), buckets.end());
    for (auto& each : blocks) {
      auto* to = request.add_blocks();
      to->set_namespace_(std::move(each.name));
      put(to->mutable_block_hashes(), each.hashes);
    }
    calls_.start<ReplaceResponse>(
        "Replace", std::move(request), bulk_timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          bulk_ours_->async()->Replace(call, of, to, then);
        },
        [done = std::move(done)](result<ReplaceResponse> answer) {
          if (!answer) return done(tl::unexpected(answer.error()));
          done({});
        });
  }

  void locate(named_blocks blocks, bool over_gaps, duration timeout,
              directory_done<located_blocks> done) override {
    const auto until = std::max(std::chrono::duration_cast<milliseconds>(timeout), milliseconds(1));
    if (pegaflow_.load()) return locate_prefix(std::move(blocks), until, std::move(done));
    LocateRequest request;
    request.set_namespace_(blocks.name);
    request.mutable_block_hashes()->Assign(blocks.hashes.begin(), blocks.hashes.end());
    request.set_except_node(self_.node);
    request.set_over_gaps(over_gaps);
    const auto asked = blocks.hashes.size();
    calls_.start<LocateResponse>(
        "Locate", std::move(request), until,
        [this](auto* call, auto* of, auto* to, auto then) {
          quick_ours_->async()->Locate(call, of, to, then);
        },
        [this, asked, until, blocks = std::move(blocks),
         done = std::move(done)](result<LocateResponse> answer) mutable {
          if (answer) return done(read_located(*answer, asked));
          if (answer.error().code != errc::not_configured)
            return done(tl::unexpected(answer.error()));
          pegaflow_.store(true);
          locate_prefix(std::move(blocks), until, std::move(done));
        });
  }

private:
  template<class Request>
  Request signed_by_us() const {
    Request request;
    request.set_node(self_.node);
    request.set_node_id(self_.node_id);
    return request;
  }

  void locate_prefix(named_blocks blocks, milliseconds timeout,
                     directory_done<located_blocks> done) {
    pegaflow::QueryPrefixBlocksRequest request;
    request.set_namespace_(std::move(blocks.name));
    const auto asked = blocks.hashes.size();
    put(request.mutable_block_hashes(), blocks.hashes);
    calls_.start<pegaflow::QueryPrefixBlocksResponse>(
        "QueryPrefixBlocks", std::move(request), timeout,
        [this](auto* call, auto* of, auto* to, auto then) {
          quick_meta_->async()->QueryPrefixBlocks(call, of, to, then);
        },
        [this, asked, done = std::move(done)](result<pegaflow::QueryPrefixBlocksResponse> answer) {
          if (!answer) return done(tl::unexpected(answer.error()));
          done(read_located(*answer, self_.node, asked));
        });
  }

  const std::string address_;
  const metaserver_identity self_;
  std::shared_ptr<grpc::Channel> quick_;
  std::shared_ptr<grpc::Channel> bulk_;
  std::unique_ptr<pegaflow::MetaServer::Stub> quick_meta_;
  std::unique_ptr<pegaflow::MetaServer::Stub> bulk_meta_;
  std::unique_ptr<Directory::Stub> quick_ours_;
  std::unique_ptr<Directory::Stub> bulk_ours_;
  std::atomic<bool> pegaflow_{false};  // it has no Locate
  call_set calls_;                     // last: its end waits for what uses the above
};

}  // namespace

std::unique_ptr<directory_link> connect_metaserver(const std::string& address,
                                                   const metaserver_identity& self) {
  return std::make_unique<metaserver_client>(address, self);
}

}  // namespace kvd
