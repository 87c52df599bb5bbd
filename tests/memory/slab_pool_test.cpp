#include "memory/slab_pool.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "core/limits.hpp"
#include "tests/memory/allocation_count.hpp"
#include "tests/memory/pool_over_buffer.hpp"

using namespace kvd;

namespace {

// Evicts everything that owns a slot among `victims`.
void evict(slab_pool& pool, std::map<block_index, slot>& live,
           std::span<const block_index> victims) {
  for (const auto victim : victims) {
    const auto at = live.find(victim);
    if (at == live.end()) continue;
    pool.release({&at->second, 1});
    live.erase(at);
  }
}

}  // namespace

TEST_CASE("part sizes round up to 512 bytes below 64 KiB and to 4096 from there on") {
  pool_over_buffer pool(4 * mib);
  CHECK(pool->bytes_of(*pool->learn(1)) == 512);
  CHECK(pool->bytes_of(*pool->learn(64)) == 512);
  CHECK(pool->bytes_of(*pool->learn(513)) == 1024);
  CHECK(pool->bytes_of(*pool->learn(64 * kib)) == 64 * kib);
  CHECK(pool->bytes_of(*pool->learn(64 * kib + 1)) == 68 * kib);
  CHECK(*pool->learn(64) == *pool->learn(512));
  CHECK(pool->snapshot().classes.size() == 4);
}

TEST_CASE("slots that an SSD file wants aligned to 4096 have that address and size") {
  pool_over_buffer pool(4 * mib, {0, 1}, false, true, 4096);
  CHECK(pool->bytes_of(*pool->learn(1)) == 4096);
  CHECK(pool->bytes_of(*pool->learn(4097)) == 8192);
  CHECK(pool->bytes_of(*pool->learn(64 * kib - 1)) == 64 * kib);
  CHECK(pool->bytes_of(*pool->learn(64 * kib + 1)) == 68 * kib);
  for (const std::uint64_t bytes : {1000, 2560, 9000}) {
    for (const auto at : take(*pool.pool, *pool->learn(bytes), 50, 1)) {
      CHECK(reinterpret_cast<std::uintptr_t>(pool->address(at)) % 4096 == 0);
    }
  }
  CHECK(pool->check() == "");
}

TEST_CASE("a part that no node can hold is refused with both sizes") {
  pool_over_buffer pool(1 * mib, {0, 1});
  const auto refused = pool->learn(1 * mib + 1);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().detail.find("1048577") != std::string::npos);
  CHECK(refused.error().detail.find("2097152") != std::string::npos);
  CHECK(refused.error().detail.find("1048576") != std::string::npos);
  CHECK(pool->learn(0).error().code == errc::invalid_argument);
  CHECK(pool->learn(1 * mib).has_value());
}

TEST_CASE("the number of size classes is bounded and the refusal names the bound") {
  pool_over_buffer pool(4 * mib);
  for (std::size_t i = 1; i <= slab_pool::classes_max; ++i) {
    const auto bytes = i <= 127 ? i * 512 : 64 * kib + (i - 128) * 4096;
    if (bytes > 4 * mib) break;
    REQUIRE(pool->learn(bytes).has_value());
  }
  pool_over_buffer wide(8 * mib);
  result<size_class> last = 0;
  for (std::uint64_t i = 1; i <= 127; ++i)
    last = wide->learn(i * 512);
  for (std::uint64_t bytes = 64 * kib; last && bytes <= 8 * mib; bytes += 4096) {
    last = wide->learn(bytes);
  }
  REQUIRE(!last.has_value());
  CHECK(last.error().code == errc::limit_exceeded);
  CHECK(last.error().detail.find("1024") != std::string::npos);
}

TEST_CASE("a region below one slab is refused and says so") {
  std::vector<std::byte> buffer(2048);
  const pool_region tiny{3, buffer.data(), buffer.size()};
  const auto refused = slab_pool::create({{&tiny, 1}, 0, false});
  REQUIRE(!refused.has_value());
  CHECK(refused.error().detail.find("node 3") != std::string::npos);
  CHECK(!slab_pool::create({{}, 0, false}).has_value());
}

TEST_CASE("slabs are a power of two between 4 KiB and 64 MiB and hold sixteen hinted values") {
  CHECK(slab_pool::chunk_bytes_for(1 * mib, 0) == 4 * kib);
  CHECK(slab_pool::chunk_bytes_for(100 * mib, 0) == 256 * kib);
  CHECK(slab_pool::chunk_bytes_for(512 * mib, 0) == 2 * mib);
  CHECK(slab_pool::chunk_bytes_for(30 * 1024 * mib, 0) == 64 * mib);
  CHECK(slab_pool::chunk_bytes_for(30 * 1024 * mib, 100 * mib) == 64 * mib);
  CHECK(slab_pool::chunk_bytes_for(2048 * mib, 1 * mib) == 16 * mib);
  CHECK(slab_pool::chunk_bytes_for(100 * mib, 8 * mib) == 2 * mib);
  CHECK(slab_pool::chunk_bytes_for(0, 0) == 4 * kib);
}

TEST_CASE("a batch gets one contiguous run and blockwise allocation takes the lowest slots") {
  for (const bool blockwise : {false, true}) {
    pool_over_buffer pool(4 * mib, {0}, blockwise);
    const auto of = *pool->learn(1024);
    auto first = take(*pool.pool, of, 12, 0);
    REQUIRE(first.size() == 12);
    // Leaves holes of one slot between live ones at the low end.
    const std::vector<slot> holes{first[1], first[3], first[5]};
    pool->release(holes);
    const auto batch = take(*pool.pool, of, 3, 100);
    REQUIRE(batch.size() == 3);
    const auto adjoining = batch[1].unit == batch[0].unit + 2 && batch[2].unit == batch[1].unit + 2;
    CHECK(adjoining == !blockwise);
    if (blockwise) CHECK(batch == holes);
    CHECK(pool->check().empty());
  }
}

TEST_CASE("a slot knows its address, node, class and owner") {
  pool_over_buffer pool(1 * mib, {4, 7});
  const auto small = *pool->learn(64);
  const auto large = *pool->learn(100 * kib);
  const auto here = take(*pool.pool, small, 3, 10, 4);
  const auto there = take(*pool.pool, large, 2, 20, 7);
  REQUIRE(here.size() == 3);
  REQUIRE(there.size() == 2);
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(pool->node_of(here[i]) == 4);
    CHECK(pool->class_of(here[i]) == small);
    CHECK(pool->owner_of(here[i]) == 10 + i);
    const auto offset = pool->address(here[i]) - pool.buffers[0].get();
    CHECK(offset == here[i].unit * std::ptrdiff_t{limits::pool_unit_bytes});
  }
  for (std::size_t i = 0; i < there.size(); ++i) {
    CHECK(pool->node_of(there[i]) == 7);
    CHECK(pool->class_of(there[i]) == large);
    CHECK(pool->owner_of(there[i]) == 20 + i);
    CHECK(pool->address(there[i]) >= pool.buffers[1].get());
    CHECK(pool->address(there[i]) + 100 * kib <= pool.buffers[1].get() + 1 * mib);
  }
}

TEST_CASE("a full node is left for the others and an unknown node starts at the emptiest") {
  pool_over_buffer pool(1 * mib, {0, 1});
  const auto of = *pool->learn(256 * kib);
  const auto on_first = take(*pool.pool, of, 3, 0, 0);
  for (const auto at : on_first)
    CHECK(pool->node_of(at) == 0);
  const auto anywhere = take(*pool.pool, of, 1, 10, -1);
  REQUIRE(anywhere.size() == 1);
  CHECK(pool->node_of(anywhere[0]) == 1);
  const auto rest = take(*pool.pool, of, 10, 20, 0);
  REQUIRE(rest.size() == 4);
  CHECK(pool->node_of(rest[0]) == 0);
  for (std::size_t i = 1; i < rest.size(); ++i)
    CHECK(pool->node_of(rest[i]) == 1);
  CHECK(take(*pool.pool, of, 1, 30, 0).empty());
  CHECK(pool->used_bytes() == 2 * mib);
  CHECK(pool->check().empty());
}

TEST_CASE("nothing is usable before the claim and slots appear as it goes on") {
  pool_over_buffer pool(1 * mib, {0}, false, false);
  const auto of = *pool->learn(64 * kib);
  CHECK(take(*pool.pool, of, 1, 0).empty());
  pool->grow(0, 128 * kib);
  CHECK(pool->claimed_bytes() == 128 * kib);
  CHECK(take(*pool.pool, of, 16, 0).size() == 2);
  pool->grow(0, 64 * kib);  // never shrinks
  pool->grow(5, 1 * mib);   // no such node
  CHECK(pool->claimed_bytes() == 128 * kib);
  pool->grow(0, 4 * mib);  // never beyond the region
  CHECK(pool->claimed_bytes() == 1 * mib);
  CHECK(take(*pool.pool, of, 16, 0).size() == 14);
  CHECK(pool->check().empty());
}

TEST_CASE("memory that one class gave back serves another") {
  pool_over_buffer pool(1 * mib);
  const auto small = *pool->learn(512);
  const auto large = *pool->learn(96 * kib);
  const auto filled = take(*pool.pool, small, 4096, 0);
  CHECK(filled.size() == 2048);
  CHECK(take(*pool.pool, large, 1, 9000).empty());
  pool->release(filled);
  CHECK(pool->snapshot().largest_free == 1 * mib);
  CHECK(take(*pool.pool, large, 100, 0).size() == 10);
  CHECK(pool->check().empty());
}

TEST_CASE("vacating the slab of one block makes room for another class") {
  pool_over_buffer pool(1 * mib);
  const auto small = *pool->learn(512);
  const auto other = *pool->learn(1024);
  std::map<block_index, slot> live;
  const auto filled = take(*pool.pool, small, 2048, 0);
  for (std::size_t i = 0; i < filled.size(); ++i)
    live[static_cast<block_index>(i)] = filled[i];
  std::vector<block_index> owners(pool->slots_per_slab_max());
  const auto count = pool->slab_owners(filled[700], owners);
  CHECK(count == 8);
  evict(*pool.pool, live, {owners.data(), count});
  CHECK(take(*pool.pool, other, 100, 5000).size() == 4);
  CHECK(pool->slab_owners(filled[700], owners) == 4);  // another class's slab by now
  CHECK(pool->check().empty());
}

TEST_CASE("the window to vacate is the cheapest one and holds no pinned block") {
  pool_over_buffer pool(1 * mib);
  const auto small = *pool->learn(4096);
  const auto large = *pool->learn(64 * kib);  // sixteen chunks of 4 KiB
  std::map<block_index, slot> live;
  const auto filled = take(*pool.pool, small, 256, 0);
  REQUIRE(filled.size() == 256);
  for (std::size_t i = 0; i < filled.size(); ++i)
    live[static_cast<block_index>(i)] = filled[i];
  const std::vector<block_index> thinned{100, 102, 104, 106};
  evict(*pool.pool, live, thinned);
  CHECK(take(*pool.pool, large, 1, 1000).empty());

  all_but may_go;
  std::vector<block_index> victims(64);
  SUBCASE("without pins it covers the holes") {
    const auto count = pool->propose_window(large, 0, may_go, victims);
    CHECK(count == 12);
    evict(*pool.pool, live, {victims.data(), count});
    CHECK(take(*pool.pool, large, 1, 1000).size() == 1);
  }
  SUBCASE("a pin next to the holes moves it away") {
    may_go.pinned = {101, 103, 105};
    const auto count = pool->propose_window(large, 0, may_go, victims);
    CHECK(count == 15);
    for (std::size_t i = 0; i < count; ++i)
      CHECK(!may_go.pinned.contains(victims[i]));
    evict(*pool.pool, live, {victims.data(), count});
    CHECK(take(*pool.pool, large, 1, 1000).size() == 1);
  }
  SUBCASE("with pins everywhere there is none, and with one gap it is found") {
    for (block_index b = 0; b < 256; b += 15)
      may_go.pinned.insert(b);
    CHECK(pool->propose_window(large, 0, may_go, victims) == 0);
    may_go.pinned.erase(195);
    const auto count = pool->propose_window(large, 0, may_go, victims);
    CHECK(count == 16);
    evict(*pool.pool, live, {victims.data(), count});
    CHECK(take(*pool.pool, large, 1, 1000).size() == 1);
  }
  SUBCASE("a list of victims that is too short is filled, and asking again goes on") {
    victims.resize(5);
    for (int round = 0; round < 4 && take(*pool.pool, large, 1, 1000).empty(); ++round) {
      evict(*pool.pool, live, {victims.data(), pool->propose_window(large, 0, may_go, victims)});
    }
    CHECK(pool->snapshot().classes[large].slots_live == 1);
  }
  CHECK(pool->check().empty());
}

TEST_CASE("a window never takes the class's own slabs and does not stay in one place") {
  pool_over_buffer pool(1 * mib);
  const auto filler = *pool->learn(4096);
  const auto other = *pool->learn(2048);
  std::map<block_index, slot> live;
  const auto filled = take(*pool.pool, filler, 256, 0);
  for (std::size_t i = 0; i < filled.size(); ++i)
    live[static_cast<block_index>(i)] = filled[i];
  all_but may_go;
  std::vector<block_index> victims(8);
  std::set<block_index> gone;
  for (block_index round = 0; round < 200; ++round) {
    const auto count = pool->propose_window(other, 0, may_go, victims);
    REQUIRE(count == 1);
    CHECK(gone.insert(victims[0]).second);
    evict(*pool.pool, live, {victims.data(), count});
    REQUIRE(take(*pool.pool, other, 2, 1000 + 2 * round).size() == 2);
  }
  CHECK(pool->check().empty());
}

TEST_CASE("parts of many slabs fit as long as their chunks adjoin") {
  pool_over_buffer pool(8 * mib);
  const auto huge = *pool->learn(3 * mib - 100);
  const auto small = *pool->learn(64);
  auto held = take(*pool.pool, huge, 5, 0);
  CHECK(held.size() == 2);
  CHECK(pool->address(held[0]) != pool->address(held[1]));
  CHECK(take(*pool.pool, small, 8, 100).size() == 8);
  CHECK(pool->check().empty());
  pool->release(held);
  held = take(*pool.pool, huge, 5, 0);
  CHECK(held.size() == 2);
  const auto whole = *pool->learn(8 * mib);
  CHECK(take(*pool.pool, whole, 1, 0).empty());
  CHECK(pool->check().empty());
}

TEST_CASE("no size wastes more than an eighth of its slabs when its slabs hold more than one") {
  pool_over_buffer pool(64 * mib);
  const auto chunk = pool->snapshot().chunk_bytes;
  for (std::uint64_t bytes = 512; bytes < 2 * chunk; bytes += 4096 + 512) {
    pool_over_buffer one(64 * mib);
    const auto of = *one->learn(bytes);
    const auto rounded = one->bytes_of(of);
    const auto held = take(*one.pool, of, 64 * mib / 512, 0);
    const auto used = held.size() * rounded;
    INFO("part of ", bytes, " bytes");
    CHECK(used * 8 >= 64 * mib * 7);
    CHECK(held.size() > 0);
  }
}

TEST_CASE("allocate, release, exchange and proposals allocate nothing after learn") {
  pool_over_buffer pool(4 * mib, {0, 1});
  const auto small = *pool->learn(512);
  const auto large = *pool->learn(300 * kib);
  std::vector<slot> out(8192);
  std::vector<block_index> owners(8192);
  for (std::size_t i = 0; i < owners.size(); ++i)
    owners[i] = static_cast<block_index>(i);
  std::vector<block_index> victims(8192);
  all_but may_go;
  const auto before = allocations_of_this_thread();
  { const std::vector<int> counted(1); }
  CHECK(allocations_of_this_thread() == before + 1);
  for (int round = 0; round < 50; ++round) {
    const auto of = round % 2 == 0 ? small : large;
    const auto count = pool->allocate(of, round % 3, out, owners);
    pool->propose_window(small, 0, may_go, victims);
    pool->slab_owners(out[0], victims);
    pool->release({out.data(), count});
  }
  CHECK(allocations_of_this_thread() == before + 1);
  CHECK(pool->used_bytes() == 0);
}

TEST_CASE("after an exchange every chunk is whole again: fragmentation is bounded by slabs") {
  pool_over_buffer pool(16 * mib);
  const auto small = *pool->learn(512);
  std::vector<slot> held = take(*pool.pool, small, 16 * mib / 512, 0);
  REQUIRE(held.size() == 16 * mib / 512);
  const auto chunk = pool->snapshot().chunk_bytes;
  // Three quarters of every slab go; live bytes stay spread over all slabs.
  std::vector<slot> gone;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (i % 4 != 0) gone.push_back(held[i]);
  }
  pool->release(gone);
  CHECK(pool->snapshot().largest_free == 512);
  // One proposal frees a chunk at the cost of a quarter of its bytes.
  all_but may_go;
  const auto other = *pool->learn(chunk);
  std::vector<block_index> victims(pool->slots_per_slab_max());
  const auto count = pool->propose_window(other, 0, may_go, victims);
  CHECK(count * 512 == chunk / 4);
  CHECK(pool->check().empty());
}

TEST_CASE("the figures add up") {
  pool_over_buffer pool(1 * mib, {0, 2});
  const auto a = *pool->learn(1000);
  const auto b = *pool->learn(70000);
  take(*pool.pool, a, 5, 0, 0);
  take(*pool.pool, b, 2, 50, 2);
  const auto now = pool->snapshot();
  CHECK(now.capacity == 2 * mib);
  CHECK(now.claimed == 2 * mib);
  CHECK(now.used == 5 * 1024 + 2 * 72 * kib);
  CHECK(now.used == pool->used_bytes());
  REQUIRE(now.nodes.size() == 2);
  CHECK(now.nodes[0].used == 5 * 1024);
  CHECK(now.nodes[1].node == 2);
  CHECK(now.classes[a].slots_live == 5);
  CHECK(now.classes[b].slots_live == 2);
  CHECK(now.classes[a].slabs == 1);
  CHECK(now.largest_free == std::max(now.nodes[0].largest_free, now.nodes[1].largest_free));
}

TEST_CASE(
    "a proposal falls back to other nodes, and works for a node that the pool does not know") {
  pool_over_buffer pool(1 * mib, {0, 1});
  const auto small = *pool->learn(512);
  const auto large = *pool->learn(64 * kib);
  const auto filled = take(*pool.pool, small, 4096, 0);
  REQUIRE(filled.size() == 4096);
  std::vector<block_index> victims(256);
  all_but may_go;
  CHECK(pool->propose_window(large, 9, may_go, victims) == 128);
  for (block_index owner = 0; owner < 2048; ++owner)
    may_go.pinned.insert(owner);
  REQUIRE(pool->propose_window(large, 0, may_go, victims) == 128);
  for (std::size_t i = 0; i < 128; ++i)
    CHECK(victims[i] >= 2048);
}
