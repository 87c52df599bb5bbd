#include "transport/grpc/metaserver_client.hpp"

#include <algorithm>
#include <utility>

#include "metaserver.grpc.pb.h"
#include "peer.grpc.pb.h"

#include "core/limits.hpp"
#include "transport/grpc/call_set.hpp"

namespace kvd {

namespace {

using std::chrono::milliseconds;

// A heartbeat or a question takes a millisecond, a call of 16,384 hashes some.
constexpr milliseconds short_timeout{2'000};
constexpr milliseconds bulk_timeout{10'000};
// A directory that says it is anything else is not ours.
constexpr std::int64_t stale_seconds_max = 24 * 3600;
constexpr std::size_t owners_max = 64;

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

// What does not fit the question is dropped: it comes from outside.
located_blocks located(const LocateResponse& answer, std::size_t asked) {
  located_blocks out;
  out.nodes.assign(answer.nodes().begin(), answer.nodes().end());
  std::uint64_t from = 0;
  for (const auto& run : answer.runs()) {
    if (run.first() < from || run.first() >= asked || run.count() == 0) continue;
    const auto count = std::min<std::uint64_t>(run.count(), asked - run.first());
    located_blocks::run found{run.first(), static_cast<std::uint32_t>(count), {}};
    for (const auto owner : run.owners())
      if (owner < out.nodes.size() && found.owners.size() < owners_max)
        found.owners.push_back(owner);
    if (found.owners.empty()) continue;
    from = run.first() + count;
    out.runs.push_back(std::move(found));
  }
  return out;
}

// PegaFlow's answer: a leading run for each node. Cut into runs of equal owners, the node with the
// longest run first.
located_blocks located(const pegaflow::QueryPrefixBlocksResponse& answer, const std::string& self,
                       std::size_t asked) {
  std::vector<std::pair<std::uint32_t, std::string>> nodes;
  for (const auto& each : answer.nodes()) {
    if (each.node() == self || each.prefix_len() == 0) continue;
    const auto length = std::min<std::uint64_t>(each.prefix_len(), asked);
    nodes.emplace_back(static_cast<std::uint32_t>(length), each.node());
  }
  std::sort(nodes.begin(), nodes.end(), std::greater<>());
  located_blocks out;
  std::vector<std::uint32_t> ends;
  for (auto& [length, node] : nodes) {
    out.nodes.push_back(std::move(node));
    ends.push_back(length);
  }
  std::uint32_t from = 0;
  for (auto left = ends.size(); left > 0; --left) {
    const auto end = ends[left - 1];  // the shortest of those that still hold `from`
    if (end == from) continue;
    located_blocks::run found{from, end - from, {}};
    for (std::uint32_t owner = 0; owner < std::min(left, owners_max); ++owner)
      found.owners.push_back(owner);
    out.runs.push_back(std::move(found));
    from = end;
  }
  return out;
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
          if (answer) return done(located(*answer, asked));
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
          done(located(*answer, self_.node, asked));
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
