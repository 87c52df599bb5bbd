// Both services of the metaserver, asked over a real connection.

#include "transport/grpc/metaserver_service.hpp"

#include <thread>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "metaserver.grpc.pb.h"
#include "peer.grpc.pb.h"

#include "core/limits.hpp"
#include "memory/directory_store.hpp"

using namespace kvd;
using grpc::StatusCode;

namespace {

constexpr const char* run_1 = "67e55044-10b1-426f-9247-bb680e5fe0c8";
constexpr const char* run_2 = "67e55044-10b1-426f-9247-bb680e5fe0c9";

struct service_fixture {
  fake_clock time;
  directory_store store{{.owners_max = 500'000, .id = "dir-1"}, time};
  std::unique_ptr<metaserver_metrics> metrics = std::make_unique<metaserver_metrics>();
  std::unique_ptr<metaserver_server> server = start("127.0.0.1:0", {});
  std::shared_ptr<grpc::Channel> channel = dial(fmt::format("127.0.0.1:{}", server->port()));
  std::unique_ptr<pegaflow::MetaServer::Stub> meta = pegaflow::MetaServer::NewStub(channel);
  std::unique_ptr<Directory::Stub> directory = Directory::NewStub(channel);

  std::unique_ptr<metaserver_server> start(const std::string& at,
                                           std::function<bool(std::function<void()>)> elsewhere) {
    auto started = metaserver_server::start(at, {.store = store,
                                                 .metrics = *metrics,
                                                 .time = time,
                                                 .stale_after = std::chrono::seconds(30),
                                                 .elsewhere = std::move(elsewhere)});
    REQUIRE(started);
    return std::move(*started);
  }
  static std::shared_ptr<grpc::Channel> dial(const std::string& at) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(at, grpc::InsecureChannelCredentials(), arguments);
  }

  grpc::Status heartbeat(const char* id, const char* node = "10.0.0.1:50055") {
    grpc::ClientContext call;
    pegaflow::HeartbeatNodeRequest request;
    request.set_node(node);
    request.set_node_id(id);
    pegaflow::HeartbeatNodeResponse response;
    const auto status = meta->HeartbeatNode(&call, request, &response);
    if (status.ok()) CHECK(response.stale_after_secs() == 30);
    return status;
  }
  template<class Request>
  static Request blocks(int first, int count, const char* id = run_1,
                        const char* node = "10.0.0.1:50055") {
    Request request;
    request.set_namespace_("ns");
    request.set_node(node);
    request.set_node_id(id);
    for (int i = first; i < first + count; ++i)
      request.add_block_hashes(fmt::format("{:032}", i));
    return request;
  }
  grpc::Status insert(const pegaflow::InsertBlockHashesRequest& request,
                      pegaflow::InsertBlockHashesResponse& response) {
    grpc::ClientContext call;
    return meta->InsertBlockHashes(&call, request, &response);
  }
  grpc::Status insert(int first, int count, const char* id = run_1,
                      const char* node = "10.0.0.1:50055") {
    pegaflow::InsertBlockHashesResponse response;
    return insert(blocks<pegaflow::InsertBlockHashesRequest>(first, count, id, node), response);
  }
  pegaflow::QueryPrefixBlocksResponse query(int first, int count) {
    grpc::ClientContext call;
    pegaflow::QueryPrefixBlocksRequest request;
    request.set_namespace_("ns");
    for (int i = first; i < first + count; ++i)
      request.add_block_hashes(fmt::format("{:032}", i));
    pegaflow::QueryPrefixBlocksResponse response;
    CHECK(meta->QueryPrefixBlocks(&call, request, &response).ok());
    return response;
  }
};

}  // namespace

TEST_CASE_FIXTURE(service_fixture, "a node registers, its blocks are found, it says goodbye") {
  REQUIRE(heartbeat(run_1).ok());
  pegaflow::InsertBlockHashesResponse inserted;
  const auto both = blocks<pegaflow::InsertBlockHashesRequest>(0, 10);
  REQUIRE(insert(both, inserted).ok());
  CHECK(inserted.status().ok());
  CHECK(inserted.inserted_count() == 10);
  REQUIRE(query(0, 20).nodes_size() == 1);
  CHECK(query(0, 20).nodes(0).node() == "10.0.0.1:50055");
  CHECK(query(0, 20).nodes(0).prefix_len() == 10);
  {
    grpc::ClientContext call;
    pegaflow::RemoveBlockHashesResponse removed;
    const auto some = blocks<pegaflow::RemoveBlockHashesRequest>(8, 10);
    REQUIRE(meta->RemoveBlockHashes(&call, some, &removed).ok());
    CHECK(removed.status().ok());
    CHECK(removed.removed_count() == 2);
  }
  grpc::ClientContext call;
  pegaflow::UnregisterNodeRequest request;
  request.set_node("10.0.0.1:50055");
  request.set_node_id(run_1);
  pegaflow::UnregisterNodeResponse farewell;
  REQUIRE(meta->UnregisterNode(&call, request, &farewell).ok());
  CHECK(farewell.removed_owners() == 8);
  CHECK(query(0, 20).nodes_size() == 0);
}

TEST_CASE_FIXTURE(service_fixture, "refusals have PegaFlow's codes and texts") {
  const auto wrong = heartbeat("x");
  CHECK(wrong.error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK(wrong.error_message().starts_with("invalid node_id: "));
  const auto unknown = insert(0, 1);
  CHECK(unknown.error_code() == StatusCode::FAILED_PRECONDITION);
  CHECK(unknown.error_message() == "unknown node");
  REQUIRE(heartbeat(run_1).ok());
  CHECK(heartbeat(run_2).error_code() == StatusCode::FAILED_PRECONDITION);
  CHECK(heartbeat(run_2).error_message() == "stale node session");
  CHECK(insert(0, 1, run_2).error_message() == "stale node session");

  pegaflow::InsertBlockHashesResponse inserted;
  REQUIRE(insert(blocks<pegaflow::InsertBlockHashesRequest>(0, 0, "x"), inserted).ok());
  CHECK(!inserted.status().ok());
  CHECK(inserted.status().message() == "block_hashes cannot be empty");
  grpc::ClientContext call;
  pegaflow::QueryPrefixBlocksResponse answer;
  const auto empty = meta->QueryPrefixBlocks(&call, {}, &answer);
  CHECK(empty.error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK(empty.error_message() == "block_hashes cannot be empty");
  using method = directory_method;
  CHECK(metrics->rpc.requests[static_cast<std::size_t>(method::heartbeat_node)][9].value() == 2);
}

TEST_CASE_FIXTURE(service_fixture, "the third owner gets the hashes that it may drop") {
  for (const auto* node : {"a:1", "b:1", "c:1"})
    REQUIRE(heartbeat(run_1, node).ok());
  REQUIRE(insert(0, 3, run_1, "a:1").ok());
  REQUIRE(insert(0, 3, run_1, "b:1").ok());
  pegaflow::InsertBlockHashesResponse response;
  REQUIRE(insert(blocks<pegaflow::InsertBlockHashesRequest>(2, 3, run_1, "c:1"), response).ok());
  REQUIRE(response.reclaimable_hashes_size() == 1);
  CHECK(response.reclaimable_hashes(0) == fmt::format("{:032}", 2));
}

TEST_CASE_FIXTURE(service_fixture, "6: an insert of 10 MiB is taken, one of 65 MiB is refused") {
  REQUIRE(heartbeat(run_1).ok());
  CHECK(insert(0, 300'000).ok());
  CHECK(query(299'000, 1000).nodes(0).prefix_len() == 1000);
  pegaflow::InsertBlockHashesRequest huge;
  huge.set_namespace_(std::string(65 << 20, 'n'));
  pegaflow::InsertBlockHashesResponse response;
  CHECK(insert(huge, response).error_code() == StatusCode::RESOURCE_EXHAUSTED);
  CHECK(heartbeat(run_1).ok());  // the connection lives on
}

TEST_CASE_FIXTURE(service_fixture,
                  "41: a full directory answers RESOURCE_EXHAUSTED with the limit") {
  REQUIRE(heartbeat(run_1).ok());
  REQUIRE(insert(0, 400'000).ok());
  const auto refused = insert(300'000, 300'000);
  CHECK(refused.error_code() == StatusCode::RESOURCE_EXHAUSTED);
  CHECK(refused.error_message().find("limit 500000") != std::string::npos);
  CHECK(query(0, 1000).nodes(0).prefix_len() == 1000);
}

TEST_CASE_FIXTURE(service_fixture, "a call whose deadline has passed is not worked on") {
  REQUIRE(heartbeat(run_1).ok());
  grpc::ClientContext call;
  call.set_deadline(gpr_inf_past(GPR_CLOCK_REALTIME));
  pegaflow::InsertBlockHashesResponse response;
  const auto late =
      meta->InsertBlockHashes(&call, blocks<pegaflow::InsertBlockHashesRequest>(0, 10), &response);
  CHECK(late.error_code() == StatusCode::DEADLINE_EXCEEDED);
  CHECK(query(0, 10).nodes_size() == 0);
}

TEST_CASE_FIXTURE(service_fixture, "the directory describes itself, and answers by runs") {
  grpc::ClientContext first;
  DescribeResponse self;
  REQUIRE(directory->Describe(&first, {}, &self).ok());
  CHECK(self.directory_id() == "dir-1");
  CHECK(self.stale_after_secs() == 30);
  CHECK(self.buckets() == 1024);

  REQUIRE(heartbeat(run_1, "a:1").ok());
  REQUIRE(heartbeat(run_1, "b:1").ok());
  REQUIRE(insert(0, 4, run_1, "a:1").ok());
  REQUIRE(insert(6, 4, run_1, "b:1").ok());
  LocateRequest request;
  request.set_namespace_("ns");
  for (int i = 0; i < 12; ++i)
    request.add_block_hashes(fmt::format("{:032}", i));
  request.set_over_gaps(true);
  grpc::ClientContext second;
  LocateResponse found;
  REQUIRE(directory->Locate(&second, request, &found).ok());
  REQUIRE(found.runs_size() == 2);
  CHECK(found.nodes(static_cast<int>(found.runs(0).owners(0))) == "a:1");
  CHECK(found.runs(1).first() == 6);
  CHECK(found.runs(1).count() == 4);
  grpc::ClientContext third;
  LocateResponse none;
  CHECK(directory->Locate(&third, {}, &none).error_code() == StatusCode::INVALID_ARGUMENT);
}

TEST_CASE_FIXTURE(service_fixture, "9: comparing and replacing make the directory right again") {
  REQUIRE(heartbeat(run_1).ok());
  REQUIRE(insert(500, 500).ok());  // 250 of them are gone meanwhile
  directory_digest mine;
  ReplaceRequest all;
  all.set_node("10.0.0.1:50055");
  all.set_node_id(run_1);
  auto* blocks = all.add_blocks();
  blocks->set_namespace_("ns");
  for (int i = 0; i < 750; ++i) {
    mine.add(key_of("ns", fmt::format("{:032}", i)));
    blocks->add_block_hashes(fmt::format("{:032}", i));
  }
  CompareRequest compare;
  compare.set_node("10.0.0.1:50055");
  compare.set_node_id(run_1);
  compare.mutable_digests()->Assign(mine.buckets().begin(), mine.buckets().end());
  const auto differing = [&] {
    grpc::ClientContext call;
    CompareResponse response;
    REQUIRE(directory->Compare(&call, compare, &response).ok());
    return response.differing();
  };
  CHECK(differing().size() > 300);
  for (std::uint32_t i = 0; i < directory_digest::bucket_count; ++i)
    all.add_buckets(i);
  grpc::ClientContext call;
  ReplaceResponse replaced;
  REQUIRE(directory->Replace(&call, all, &replaced).ok());
  CHECK(replaced.inserted() == 500);
  CHECK(replaced.removed() == 250);
  CHECK(differing().empty());

  grpc::ClientContext again;
  all.clear_buckets();
  const auto outside = directory->Replace(&again, all, &replaced);
  CHECK(outside.error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK(outside.error_message().find("is none of those to replace") != std::string::npos);
  grpc::ClientContext short_call;
  CompareResponse none;
  compare.mutable_digests()->Truncate(5);
  CHECK(directory->Compare(&short_call, compare, &none).error_message() ==
        "5 digests; exactly 1024 are needed");
}

TEST_CASE_FIXTURE(service_fixture, "a store that waits is asked on other threads, or not at all") {
  std::atomic<bool> room{true};
  std::atomic<int> ran{0};
  std::vector<std::jthread> threads;
  const auto other = start("127.0.0.1:0", [&](std::function<void()> work) {
    if (!room) return false;
    threads.emplace_back([&ran, work = std::move(work)] {
      work();
      ++ran;
    });
    return true;
  });
  meta = pegaflow::MetaServer::NewStub(dial(fmt::format("127.0.0.1:{}", other->port())));
  CHECK(heartbeat(run_1).ok());
  threads.clear();
  CHECK(ran == 1);
  room = false;
  CHECK(heartbeat(run_1).error_code() == StatusCode::UNAVAILABLE);
  other->stop(0);
}

TEST_CASE_FIXTURE(service_fixture, "it listens on IPv6, and two servers never share a port") {
  const auto sixth = start("[::1]:0", {});
  meta = pegaflow::MetaServer::NewStub(dial(fmt::format("[::1]:{}", sixth->port())));
  CHECK(heartbeat(run_1).ok());
  const auto taken = metaserver_server::start(
      fmt::format("127.0.0.1:{}", server->port()),
      {.store = store, .metrics = *metrics, .time = time, .stale_after = std::chrono::seconds(30)});
  REQUIRE(!taken);
  CHECK(taken.error().code == errc::io);
}
