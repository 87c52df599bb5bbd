#include "tests/transport/engine/plane_fixture.hpp"

using namespace kvd;
using kvd::test::client_flag;
using kvd::test::plane_fixture;
using kvd::test::save_answer;

namespace {

void fill(device_memory& memory, int seed) {
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory.data()[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed)) >> 3);
  }
}

}  // namespace

TEST_CASE_FIXTURE(plane_fixture, "what is saved from one block is loaded into another") {
  REQUIRE(register_worker("a", 0, 0, 1, 1));
  for (auto& tensor : opener.opened)
    fill(*tensor, 7);
  const auto request = save_request("a", 0, 0, 2, 0, {1, 2});
  save_answer answer;
  start_save(request, answer);
  CHECK(!answer.outcome);
  run_copies();
  REQUIRE(answer.ok());
  CHECK((*answer.outcome)->empty());
  const auto ready = query("a", 0, 2);
  CHECK(ready.num_hit_blocks() == 2);
  const client_flag flag;
  REQUIRE(start_load(load_request("a", 0, 2, ready.lease(), {9, 8}), flag));
  CHECK(flag.state() == 0);
  run_copies();
  CHECK(flag.state() == 1);
  for (auto& tensor : opener.opened) {
    const auto v = tensor->data() + 16 * 1024;
    CHECK(std::memcmp(tensor->data() + 9 * 1024, tensor->data() + 1024, 1024) == 0);
    CHECK(std::memcmp(v + 8 * 1024, v + 2 * 1024, 1024) == 0);
  }
  CHECK(metrics.pinned_bytes.value() == 0);
  CHECK(copies.save_bytes.value() == 2 * 2 * 2048);
  CHECK(store->check() == "");
}

TEST_CASE_FIXTURE(plane_fixture, "a block of two ranks can be found when both have saved it") {
  REQUIRE(register_worker("a", 0, 0, 2, 2));
  CHECK(query("a", 0, 1).num_hit_blocks() == 0);
  REQUIRE(register_worker("a", 1, 1, 2, 2));
  save_answer first;
  save_answer second;
  const auto rank0 = save_request("a", 0, 0, 2, 0, {3});
  const auto rank1 = save_request("a", 1, 1, 2, 0, {3});
  start_save(rank0, first);
  run_copies();
  CHECK(first.ok());
  CHECK(query("a", 0, 1).num_hit_blocks() == 0);
  start_save(rank1, second);
  run_copies();
  CHECK(query("a", 0, 1).num_hit_blocks() == 1);
}

TEST_CASE_FIXTURE(plane_fixture, "a save waits for the copy of the same block that is under way") {
  REQUIRE(register_worker("a", 0, 0, 1, 1));
  REQUIRE(register_worker("b", 0, 0, 1, 1));
  save_answer first;
  save_answer second;
  const auto mine = save_request("a", 0, 0, 2, 0, {1, 2});
  const auto same = save_request("b", 0, 0, 2, 0, {5, 6});
  start_save(mine, first);
  start_save(same, second);
  CHECK(copier.queued() == 1);
  CHECK(!second.outcome);
  run_copies();
  CHECK(first.ok());
  CHECK(second.ok());
  CHECK(metrics.resident_blocks.value() == 2);
}

TEST_CASE_FIXTURE(plane_fixture, "a waiting save copies itself when the other copy fails") {
  REQUIRE(register_worker("a", 0, 0, 1, 1));
  REQUIRE(register_worker("b", 0, 0, 1, 1));
  save_answer first;
  save_answer second;
  const auto mine = save_request("a", 0, 0, 2, 0, {1});
  const auto same = save_request("b", 0, 0, 2, 0, {5});
  start_save(mine, first);
  start_save(same, second);
  copier.script(copy_script::fail);
  run_copies();
  REQUIRE(first.outcome);
  CHECK(first.outcome->error().code == errc::device);
  CHECK(second.ok());
  CHECK(query("b", 0, 1).num_hit_blocks() == 1);
}

TEST_CASE_FIXTURE(plane_fixture, "hashes that repeat inside a layer are stored once") {
  REQUIRE(register_worker("a", 0, 0, 1, 1, 1));
  auto request = save_request("a", 0, 0, 1, 0, {1, 2});
  auto* layer = request.mutable_saves(0);
  layer->add_block_ids(3);
  layer->add_block_hashes(layer->block_hashes(0));
  save_answer answer;
  start_save(request, answer);
  run_copies();
  CHECK(answer.ok());
  CHECK(metrics.resident_blocks.value() == 2);
}

TEST_CASE_FIXTURE(plane_fixture, "layers that come in separate saves seal the block together") {
  REQUIRE(register_worker("a", 0, 0, 1, 1, 3));
  for (int i = 0; i < 3; ++i) {
    CHECK(query("a", 0, 1).num_hit_blocks() == 0);
    auto request = save_request("a", 0, 0, 3, 0, {1});
    auto one = request;
    one.clear_saves();
    *one.add_saves() = request.saves(i);
    save_answer answer;
    start_save(one, answer);
    run_copies();
    CHECK(answer.ok());
  }
  CHECK(query("a", 0, 1).num_hit_blocks() == 1);
}

TEST_CASE_FIXTURE(plane_fixture, "a load whose flag is unlinked stops and writes nothing") {
  REQUIRE(register_worker("a", 0, 0, 1, 1, 1));
  fill(*opener.opened[0], 3);
  save_answer answer;
  const auto request = save_request("a", 0, 0, 1, 0, {1});
  start_save(request, answer);
  run_copies();
  client_flag flag;
  std::memset(opener.opened[0]->data() + 9 * 1024, 0x5a, 1024);
  REQUIRE(start_load(load_request("a", 0, 1, query("a", 0, 1).lease(), {9}), flag));
  flag.unlink();
  run_copies();
  CHECK(opener.opened[0]->data()[9 * 1024] == std::byte{0x5a});
  CHECK(copies.load_cancelled.value() == 1);
  CHECK(metrics.pinned_bytes.value() == 0);
}

TEST_CASE_FIXTURE(plane_fixture,
                  "a load that is too late for its client says so and writes nothing") {
  REQUIRE(register_worker("a", 0, 0, 1, 1, 1));
  save_answer answer;
  const auto request = save_request("a", 0, 0, 1, 0, {1});
  start_save(request, answer);
  run_copies();
  const client_flag flag;
  std::memset(opener.opened[0]->data() + 9 * 1024, 0x5a, 1024);
  REQUIRE(start_load(load_request("a", 0, 1, query("a", 0, 1).lease(), {9}), flag));
  time.advance(limits::load_deadline + std::chrono::seconds(1));
  run_copies();
  CHECK(flag.state() == -1);
  CHECK(opener.opened[0]->data()[9 * 1024] == std::byte{0x5a});
}

TEST_CASE_FIXTURE(plane_fixture, "an instance that closes is idle when its last copy has ended") {
  REQUIRE(register_worker("a", 0, 0, 1, 1, 1));
  save_answer answer;
  const auto request = save_request("a", 0, 0, 1, 0, {1});
  start_save(request, answer);
  auto held = instances.find("a");
  held->life->close(false);
  CHECK(idle_notices == 0);
  CHECK(!operation::begin(held));
  run_copies();
  CHECK(answer.ok());
  CHECK(idle_notices >= 1);
}

TEST_CASE_FIXTURE(plane_fixture, "an exact set is leased whole or not at all") {
  REQUIRE(register_worker("a", 0, 0, 1, 1, 1));
  pegaflow::RegisterContextRequest hybrid;
  hybrid.set_instance_id("h");
  hybrid.set_tp_size(1);
  hybrid.set_world_size(1);
  for (std::uint32_t group = 0; group < 2; ++group) {
    hybrid.add_layer_names("layer." + std::to_string(group));
    hybrid.add_wrapper_bytes("16384");
    hybrid.add_num_blocks(16);
    hybrid.add_bytes_per_block(1024);
    hybrid.add_kv_stride_bytes(0);
    hybrid.add_segments(1);
    hybrid.add_layer_group_ids(group);
  }
  REQUIRE(add(hybrid));
  auto request = save_request("h", 0, 0, 2, 0, {1, 2, 3});
  save_answer answer;
  start_save(request, answer);
  run_copies();
  REQUIRE(answer.ok());
  const auto some = query("h", 0, 5, 1, true);
  CHECK(some.num_hit_blocks() == 3);
  CHECK(some.lease().empty());
  const auto whole = query("h", 0, 3, 1, true);
  CHECK(whole.lease().size() == 16);
  CHECK(whole.hit_positions_size() == 3);
  const auto members = query("h", 1, 4, 1);
  CHECK(members.num_hit_blocks() == 2);
  CHECK(members.hit_positions(1) == 1);
}
