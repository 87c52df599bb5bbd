#include <future>

#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>

#include "tests/memory/store_fixture.hpp"
#include "transport/grpc/node_messages.hpp"
#include "transport/grpc/peer_client.hpp"
#include "transport/grpc/peer_service.hpp"

using namespace kvd;
using kvd::test::hashes;
using kvd::test::simple_layout;
using kvd::test::store_fixture;

namespace {

// A holder that others reach over gRPC.
struct holder : store_fixture {
  sharing_metrics sharing;
  transfer_locks locks{*store, time, random, sharing, std::chrono::seconds(120)};
  transfer_desk desk{*store, locks, "this run", std::string("where\0it is", 11)};
  peer_service service;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
  std::unique_ptr<peer_calls> calls;

  explicit holder(bool shares = true) : service(shares ? &desk : nullptr) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    calls = connect_peer("127.0.0.1:" + std::to_string(port), "the reader");
  }
  ~holder() { server->Shutdown(); }

  result<peer_hello> hello() {
    std::promise<result<peer_hello>> said;
    calls->hello([&](result<peer_hello> answer) { said.set_value(std::move(answer)); });
    return said.get_future().get();
  }
  result<peer_lock> lock(const hashes& which, std::string run = "this run") {
    peer_lock_request request{std::move(run), "ns", 0, {7, 7}, {}};
    for (const auto* hash : which.list())
      request.hashes.push_back(*hash);
    std::promise<result<peer_lock>> said;
    calls->lock(std::move(request), std::chrono::seconds(30),
                [&](result<peer_lock> answer) { said.set_value(std::move(answer)); });
    return said.get_future().get();
  }
};

}  // namespace

TEST_CASE_FIXTURE(holder, "a peer says who it is, locks what it has, and lets go") {
  const auto who = hello();
  REQUIRE(who);
  CHECK(who->boot_id == "this run");
  CHECK(who->address == std::string("where\0it is", 11));
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 2, 7));
  save(in, hashes(0, 2));
  save(in, hashes(5, 1));
  const auto locked = lock(hashes(0, 6));
  REQUIRE(locked);
  CHECK(locked->positions == std::vector<std::uint32_t>{0, 1, 5});
  CHECK(locked->timeout == std::chrono::seconds(120));
  REQUIRE(locked->units.size() == 6);
  std::vector<block_index> pinned;
  store->pin_prefix(in, hashes(0, 1).list(), pinned);
  for (std::uint32_t part = 0; part < 2; ++part) {
    const auto at = memory.get() + std::uint64_t{locked->units[part]} * limits::pool_unit_bytes;
    CHECK(at == store->part_address(pinned[0], part));
  }
  store->unpin(pinned);
  CHECK(sharing.locked_blocks.value() == 3);
  calls->unlock(locked->session);
  while (sharing.locked_blocks.value() != 0)
    std::this_thread::yield();
  CHECK(metrics.pinned_bytes.value() == 0);
}

TEST_CASE_FIXTURE(holder, "a lock for another run, another layout or a bad hash takes nothing") {
  const auto in = *store->open_scope("ns", 0, simple_layout(4096, 2, 8));
  save(in, hashes(0, 2));
  const auto layout = lock(hashes(0, 2));
  REQUIRE(layout);
  CHECK(layout->positions.empty());
  const auto run = lock(hashes(0, 2), "the run before");
  REQUIRE_FALSE(run);
  CHECK(run.error().code == errc::instance_missing);
  std::promise<result<peer_lock>> said;
  calls->lock({"this run", "ns", 0, {7, 7}, {std::string(65, 'x')}}, std::chrono::seconds(30),
              [&](result<peer_lock> answer) { said.set_value(std::move(answer)); });
  const auto hash = said.get_future().get();
  REQUIRE_FALSE(hash);
  CHECK(hash.error().code == errc::invalid_argument);
  CHECK(hash.error().detail.find("block_hashes[0] has 65 bytes; 1 to 64") != std::string::npos);
  CHECK(sharing.locked_blocks.value() == 0);
}

TEST_CASE("a server that shares nothing says so") {
  holder alone(false);
  const auto who = alone.hello();
  REQUIRE_FALSE(who);
  CHECK(who.error().code == errc::not_configured);
}

TEST_CASE("calls to a node that is not there are answered, and end with their caller") {
  auto calls = connect_peer("127.0.0.1:1", "the reader");
  std::promise<errc> said;
  calls->hello([&](const result<peer_hello>& answer) { said.set_value(answer.error().code); });
  CHECK(said.get_future().get() == errc::unavailable);
  bool ended = false;
  calls->lock({"run", "ns", 0, {}, {"hash"}}, std::chrono::hours(1),
              [&](const result<peer_lock>& answer) { ended = !answer.has_value(); });
  calls.reset();
  CHECK(ended);
}

TEST_CASE("PegaFlow's prefix lengths become runs, the longest owner first") {
  pegaflow::QueryPrefixBlocksResponse answer;
  for (const auto& [node, length] :
       {std::pair{"a:1", 3}, {"self:1", 9}, {"b:1", 5}, {"c:1", 3}, {"d:1", 0}, {"e:1", 700}}) {
    auto* each = answer.add_nodes();
    each->set_node(node);
    each->set_prefix_len(static_cast<std::uint32_t>(length));
  }
  const auto found = read_located(answer, "self:1", 8);
  REQUIRE(found.nodes.size() == 4);
  CHECK(found.nodes[0] == "e:1");
  CHECK(found.nodes[1] == "b:1");
  REQUIRE(found.runs.size() == 3);
  CHECK(found.runs[0].count == 3);
  CHECK(found.runs[0].owners.size() == 4);
  CHECK(found.runs[1].first == 3);
  CHECK(found.runs[1].count == 2);
  CHECK(found.runs[1].owners == std::vector<std::uint32_t>{0, 1});
  CHECK(found.runs[2].first == 5);
  CHECK(found.runs[2].count == 3);
  CHECK(found.runs[2].owners == std::vector<std::uint32_t>{0});
}

TEST_CASE("PegaFlow's answer is read where 0.25 puts it, too") {
  pegaflow::QueryPrefixBlocksResponse answer;
  auto* each = answer.add_nodes_since_0_25();
  each->set_node("a:1");
  each->set_prefix_len(2);
  const auto found = read_located(answer, "self:1", 8);
  REQUIRE(found.runs.size() == 1);
  CHECK(found.runs[0].count == 2);
}

TEST_CASE("a lock that does not add up is refused whole") {
  const auto refused = [](std::initializer_list<std::uint32_t> positions,
                          std::initializer_list<std::int64_t> steps) {
    LockResponse answer;
    answer.mutable_positions()->Add(positions.begin(), positions.end());
    answer.mutable_steps()->Add(steps.begin(), steps.end());
    return !read_lock(std::move(answer), 4).has_value();
  };
  CHECK_FALSE(refused({0, 3}, {8, 8, -8, 64}));
  CHECK_FALSE(refused({}, {}));
  CHECK(refused({3, 0}, {1, 1}));
  CHECK(refused({1, 1}, {1, 1}));
  CHECK(refused({4}, {1}));
  CHECK(refused({0}, {}));
  CHECK(refused({}, {1}));
  CHECK(refused({0, 1}, {1, 1, 1}));
  CHECK(refused({0}, {-1}));
  CHECK(refused({0, 1}, {0xffffffff, 1}));
}
