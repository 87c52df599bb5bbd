// What an instance leaves behind when it ends while a query of it runs.

#include <doctest/doctest.h>

#include <vector>

#include "actors/instance_registry.hpp"
#include "tests/transport/engine/plane_fixture.hpp"

using namespace kvd;
using namespace kvd::test;

namespace {

pegaflow::RegisterContextRequest one_worker() {
  pegaflow::RegisterContextRequest request;
  request.set_instance_id("a");
  request.set_namespace_("ns");
  request.set_tp_size(1);
  request.set_world_size(1);
  request.add_layer_names("layer.0");
  request.add_wrapper_bytes(std::to_string(16 * 1024));
  request.add_num_blocks(16);
  request.add_bytes_per_block(1024);
  request.add_kv_stride_bytes(0);
  request.add_segments(1);
  return request;
}

}  // namespace

TEST_CASE("a query that is under way when its instance ends leaves no lease") {
  plane_fixture at;
  control_metrics metrics;
  instance_registry registry(at.instances, *at.store, *at.leases, at.opener, metrics);
  std::vector<std::uint64_t> idle;
  REQUIRE(registry.register_worker(one_worker(),
                                   [&](std::uint64_t serial) { idle.push_back(serial); }));
  save_answer saved;
  const auto save = plane_fixture::save_request("a", 0, 0, 1, 0, {0, 1, 2});  // used until answered
  at.start_save(save, saved);
  at.run_copies();
  REQUIRE(saved.ok());

  auto running = operation::begin(at.instances.find("a"));
  REQUIRE(running);
  bool gone = false;
  registry.unregister("a", reply<void>([&](const result<void>& how) { gone = how.has_value(); }));
  CHECK_FALSE(gone);
  // The query goes on with the instance that it began with, and is granted its lease.
  pegaflow::QueryRequest request;
  request.set_instance_id("a");
  request.set_req_id("r");
  const hashes names(0, 3);
  for (const auto* hash : names.list())
    request.add_block_hashes(*hash);
  pegaflow::QueryResponse answer;
  REQUIRE(at.queries.query(running->of(), request, answer));
  CHECK(answer.ready().num_hit_blocks() == 3);
  CHECK(at.metrics.leases.value() == 1);

  running->end();
  REQUIRE(idle.size() == 1);
  registry.idle(idle.front());
  CHECK(gone);
  CHECK(at.metrics.leases.value() == 0);
  CHECK(at.metrics.pinned_bytes.value() == 0);
}
