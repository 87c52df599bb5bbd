#include "tests/memory/allocation_count.hpp"
#include "tests/transport/engine/plane_fixture.hpp"

using namespace kvd;
using kvd::test::client_flag;
using kvd::test::plane_fixture;
using kvd::test::save_answer;

// What gRPC allocates for its messages is its own; everything between a decoded request and the
// answer is ours.
TEST_CASE("a warmed-up save, query and load allocate nothing of their own") {
  plane_fixture at(1 << 20);
  REQUIRE(at.register_worker("a", 0, 0, 1, 1, 4));
  const client_flag flag;
  std::vector<pegaflow::SaveRequest> requests;
  for (int i = 0; i < 24; ++i) {
    requests.push_back(
        plane_fixture::save_request("a", 0, 0, 4, i * 16, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  }
  pegaflow::QueryRequest asked;
  asked.set_instance_id("a");
  asked.set_req_id("r");
  std::size_t ours = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    // More than the pool holds, so that eviction is on the path; the first rounds warm up.
    const bool warm = i >= 16;
    save_answer answer;
    asked.mutable_block_hashes()->CopyFrom(requests[i].saves(0).block_hashes());
    pegaflow::QueryResponse response;
    auto& ready = *response.mutable_ready();
    ready.mutable_lease()->reserve(32);
    auto before = allocations_of_this_thread();
    at.start_save(requests[i], answer);
    at.run_copies();
    const auto of = at.instances.find(requests[i].instance_id());
    REQUIRE(at.queries.query(*of, asked, response));
    if (warm) ours += allocations_of_this_thread() - before;
    REQUIRE(answer.ok());
    REQUIRE(ready.num_hit_blocks() == 12);
    const auto load = plane_fixture::load_request("a", 0, 4, ready.lease(),
                                                  {11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
    auto attached = *load_state::attach(flag.name());
    before = allocations_of_this_thread();
    REQUIRE(at.loads.start(*operation::begin(of), load, std::move(attached)));
    at.run_copies();
    if (warm) ours += allocations_of_this_thread() - before;
  }
  CHECK(at.metrics.evictions_pressure.value() > 0);
  // The inline device queues its jobs in a deque, which takes a new piece once in 64 jobs or so; a
  // real device links them (its own test counts).
  CHECK(ours <= 1);
}
