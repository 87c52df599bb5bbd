#include "memory/arena.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <pthread.h>

#include <doctest/doctest.h>

using namespace kvd;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr arena::options plain{16 * mib, 0, false, true, 2, 2 * mib};

// As many nodes as asked for; remembers who ran where.
class fake_nodes final : public numa_nodes {
public:
  explicit fake_nodes(std::vector<int> ids) : ids_(std::move(ids)) {}
  std::vector<int> with_memory() const override { return ids_; }
  unsigned cpus_of(int node) const override { return memory_only.contains(node) ? 0 : 2; }
  result<void> prefer_memory(std::byte*, std::size_t, int node) override {
    bound.insert(node);
    return {};
  }
  result<void> run_here(int node) override {
    const std::lock_guard lock(mutex_);
    std::string name(16, '\0');
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    threads[name.c_str()] = node;
    return {};
  }
  std::set<int> memory_only;
  std::set<int> bound;
  std::map<std::string, int> threads;

private:
  std::mutex mutex_;
  std::vector<int> ids_;
};

// Plain memory that may be told to fail, or to hold its callers until let go.
class fake_pages final : public page_supply {
public:
  result<std::byte*> map(std::size_t bytes, bool huge) override {
    if (mapped == maps_allowed) return fail(errc::io, "no address space");
    ++mapped;
    asked_huge = huge;
    asked_bytes += bytes;
    return static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  }
  void unmap(std::byte* at, std::size_t) noexcept override {
    --mapped;
    std::free(at);
  }
  result<void> lock(std::byte*, std::size_t bytes) override {
    if (!may_lock) return fail(errc::io, "mlock2 says no");
    locked += bytes;
    return {};
  }
  result<void> populate(std::byte* at, std::size_t bytes) override {
    std::unique_lock lock(mutex_);
    const auto number = populated++;
    changed_.notify_all();
    changed_.wait(lock, [&] { return number < permits_; });
    if (number >= fail_from) return fail(errc::io, "piece " + std::to_string(number) + " failed");
    std::fill_n(at, bytes, std::byte{0});
    return {};
  }
  void permit(std::size_t calls) {
    const std::lock_guard lock(mutex_);
    permits_ = calls;
    changed_.notify_all();
  }
  void await_calls(std::size_t calls) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return populated >= calls; });
  }
  bool asked_huge = false;
  bool may_lock = true;
  int mapped = 0;
  int maps_allowed = 100;
  std::uint64_t asked_bytes = 0;
  std::uint64_t locked = 0;
  std::size_t populated = 0;
  std::size_t fail_from = ~std::size_t{0};

private:
  std::size_t permits_ = ~std::size_t{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct reports {
  std::mutex mutex;
  std::map<int, std::vector<std::uint64_t>> by_node;
  arena::progress_report to() {
    return [this](int node, std::uint64_t bytes) {
      const std::lock_guard lock(mutex);
      by_node[node].push_back(bytes);
    };
  }
};

}  // namespace

TEST_CASE("the pool is split evenly over the nodes that have memory, and touched on them") {
  fake_nodes nodes({0, 3});
  fake_pages pages;
  reports seen;
  auto made = arena::create(plain, {}, nodes, pages);
  REQUIRE(made.has_value());
  REQUIRE((*made)->regions().size() == 2);
  CHECK((*made)->regions()[1].node == 3);
  CHECK((*made)->regions()[1].bytes == 8 * mib);
  CHECK(nodes.bound == std::set<int>{0, 3});
  CHECK(pages.locked == 16 * mib);
  CHECK((*made)->progress().claimed == 0);
  CHECK(!(*made)->progress().finished);
  (*made)->start(seen.to());
  CHECK((*made)->wait().has_value());
  const auto now = (*made)->progress();
  CHECK(now.finished);
  CHECK(now.claimed == now.total);
  for (const auto node : {0, 3}) {
    CHECK(std::is_sorted(seen.by_node[node].begin(), seen.by_node[node].end()));
    CHECK(seen.by_node[node].back() == 8 * mib);
  }
  CHECK(nodes.threads ==
        std::map<std::string, int>{
            {"kvd-touch-0", 0}, {"kvd-touch-1", 0}, {"kvd-touch-2", 3}, {"kvd-touch-3", 3}});
  made->reset();
  CHECK(pages.mapped == 0);
}

TEST_CASE("one node, or affinity switched off, is one region without a memory policy") {
  for (const bool affinity : {true, false}) {
    fake_nodes nodes(affinity ? std::vector<int>{0} : std::vector<int>{0, 1});
    fake_pages pages;
    auto how = plain;
    how.numa_affinity = affinity;
    auto made = arena::create(how, {}, nodes, pages);
    REQUIRE(made.has_value());
    CHECK((*made)->regions().size() == 1);
    CHECK((*made)->regions()[0].bytes == 16 * mib);
    CHECK(nodes.bound.empty());
    (*made)->start([](int, std::uint64_t) {});
    CHECK((*made)->wait().has_value());
    CHECK(nodes.threads.empty() == !affinity);
  }
}

TEST_CASE("a node of memory only is touched from anywhere") {
  fake_nodes nodes({0, 1});
  nodes.memory_only = {1};
  fake_pages pages;
  auto made = arena::create(plain, {}, nodes, pages);
  REQUIRE(made.has_value());
  (*made)->start([](int, std::uint64_t) {});
  CHECK((*made)->wait().has_value());
  for (const auto& [name, node] : nodes.threads)
    CHECK(node == 0);
}

TEST_CASE("the claim never goes beyond the configured size") {
  for (const std::uint64_t bytes : {16 * mib + 1, 17 * mib - 1, 10 * mib + 12345, 1 * mib}) {
    for (const bool huge : {false, true}) {
      fake_nodes nodes({0, 1, 2});
      fake_pages pages;
      memory_facts facts;
      facts.huge_pages_free = 100;
      auto how = plain;
      how.pool_bytes = bytes;
      how.use_hugepages = huge;
      auto made = arena::create(how, facts, nodes, pages);
      if (!made) {
        CHECK(bytes == 1 * mib);
        CHECK(huge);
        CHECK(made.error().code == errc::invalid_argument);
        CHECK(made.error().detail.find("--pool-size 1048576") != std::string::npos);
        continue;
      }
      CHECK(pages.asked_bytes <= bytes);
      CHECK(pages.asked_bytes + 3 * (huge ? 2 * mib : mib) > bytes);
      CHECK((pages.locked == 0) == huge);
      CHECK(pages.asked_huge == huge);
    }
  }
}

TEST_CASE("limits are checked before anything is mapped") {
  fake_nodes nodes({0});
  fake_pages pages;
  memory_facts facts;
  facts.memlock = 8 * mib;
  const auto refused = arena::create(plain, facts, nodes, pages);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(pages.asked_bytes == 0);
  auto huge = plain;
  huge.use_hugepages = true;
  CHECK(arena::create(huge, {}, nodes, pages).error().detail.find("vm.nr_hugepages=8") !=
        std::string::npos);
  CHECK(pages.asked_bytes == 0);
}

TEST_CASE("no pinned memory, no start: a refused lock is an error and gives the memory back") {
  fake_nodes nodes({0, 1});
  fake_pages pages;
  pages.may_lock = false;
  const auto refused = arena::create(plain, {}, nodes, pages);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().detail == "mlock2 says no");
  CHECK(pages.mapped == 0);
}

TEST_CASE("a node whose memory cannot be mapped gives the others back") {
  fake_nodes nodes({0, 1});
  fake_pages pages;
  pages.maps_allowed = 1;
  CHECK(arena::create(plain, {}, nodes, pages).error().detail == "no address space");
  CHECK(pages.mapped == 0);
}

TEST_CASE("the error of a touch thread stops the claim and is never lost") {
  fake_nodes nodes({0});
  fake_pages pages;
  pages.fail_from = 3;
  reports seen;
  auto made = arena::create(plain, {}, nodes, pages);
  REQUIRE(made.has_value());
  (*made)->start(seen.to());
  const auto failed = (*made)->wait();
  REQUIRE(!failed.has_value());
  CHECK(failed.error().code == errc::io);
  CHECK(failed.error().detail.find("failed") != std::string::npos);
  const auto now = (*made)->progress();
  CHECK(now.finished);
  CHECK(now.failure.has_value());
  CHECK(now.claimed <= 3 * 2 * mib);
  CHECK((*made)->wait().error().detail == failed.error().detail);
}

TEST_CASE("the pool is usable while the claim goes on, and pieces count from the start only") {
  fake_nodes nodes({0});
  fake_pages pages;
  pages.permit(2);
  auto how = plain;
  how.touch_threads = 1;
  auto made = arena::create(how, {}, nodes, pages);
  REQUIRE(made.has_value());
  auto pool = slab_pool::create({(*made)->regions(), 0, false});
  REQUIRE(pool.has_value());
  const auto of = *(*pool)->learn(mib);
  (*made)->start([&](int node, std::uint64_t bytes) { (*pool)->grow(node, bytes); });
  pages.await_calls(3);
  CHECK((*made)->progress().claimed == 4 * mib);
  CHECK(!(*made)->progress().finished);
  CHECK((*pool)->claimed_bytes() == 4 * mib);
  std::vector<slot> out(16);
  const std::vector<block_index> owners(16, 1);
  CHECK((*pool)->allocate(of, 0, out, owners) == 4);
  pages.permit(100);
  CHECK((*made)->wait().has_value());
  CHECK((*pool)->allocate(of, 0, out, owners) == 12);
}

TEST_CASE("a claim that is cancelled in the middle ends and says how far it came") {
  fake_nodes nodes({0});
  fake_pages pages;
  pages.permit(2);
  auto how = plain;
  how.touch_threads = 1;
  auto made = arena::create(how, {}, nodes, pages);
  REQUIRE(made.has_value());
  (*made)->start([](int, std::uint64_t) {});
  pages.await_calls(3);
  (*made)->cancel();
  pages.permit(3);
  const auto ended = (*made)->wait();
  REQUIRE(!ended.has_value());
  CHECK(ended.error().code == errc::cancelled);
  CHECK(ended.error().detail.find("6291456 of 16777216") != std::string::npos);
  CHECK(pages.populated == 3);
}

TEST_CASE("an arena may be destroyed in the middle of its claim") {
  fake_nodes nodes({0, 1});
  fake_pages pages;
  pages.permit(4);
  {
    auto made = arena::create(plain, {}, nodes, pages);
    REQUIRE(made.has_value());
    (*made)->start([](int, std::uint64_t) {});
    pages.await_calls(5);
    (*made)->cancel();
    pages.permit(100);
  }
  CHECK(pages.mapped == 0);
}

TEST_CASE("pieces that end out of order are reported in order") {
  fake_nodes nodes({0});
  fake_pages pages;
  reports seen;
  auto how = plain;
  how.touch_threads = 4;
  for (int round = 0; round < 20; ++round) {
    seen.by_node.clear();
    auto made = arena::create(how, {}, nodes, pages);
    REQUIRE(made.has_value());
    (*made)->start(seen.to());
    REQUIRE((*made)->wait().has_value());
    const auto& row = seen.by_node[0];
    CHECK(std::is_sorted(row.begin(), row.end()));
    CHECK(std::adjacent_find(row.begin(), row.end()) == row.end());
    CHECK(row.back() == 16 * mib);
  }
}

TEST_CASE("the kernel's pages are locked, zeroed, writable and aligned to huge pages") {
  const auto before = read_memory_facts({}, read_memlock_limit());
  const auto nodes = system_numa_nodes();
  const auto pages = system_page_supply();
  auto how = plain;
  how.pool_bytes = 4 * mib;  // within the usual 8 MiB of `ulimit -l`
  auto made = arena::create(how, before, *nodes, *pages);
  REQUIRE(made.has_value());
  (*made)->start([](int, std::uint64_t) {});
  REQUIRE((*made)->wait().has_value());
  CHECK(read_memory_facts({}, std::nullopt).locked == before.locked + 4 * mib);
  for (const auto& region : (*made)->regions()) {
    CHECK(reinterpret_cast<std::uintptr_t>(region.base) % huge_page_bytes == 0);
    CHECK(std::all_of(region.base, region.base + region.bytes,
                      [](std::byte each) { return each == std::byte{0}; }));
    std::fill_n(region.base, region.bytes, std::byte{0xab});
  }
  made->reset();
  CHECK(read_memory_facts({}, std::nullopt).locked == before.locked);
}

TEST_CASE("reserved huge pages are used when there are enough, and refused by name otherwise") {
  const auto facts = read_memory_facts({}, read_memlock_limit());
  const auto nodes = system_numa_nodes();
  const auto pages = system_page_supply();
  auto how = plain;
  how.pool_bytes = 4 * mib * nodes->with_memory().size();
  how.use_hugepages = true;
  auto made = arena::create(how, facts, *nodes, *pages);
  if (!made) {
    CHECK(facts.huge_pages_free < how.pool_bytes / huge_page_bytes);
    CHECK(made.error().detail.find("vm.nr_hugepages") != std::string::npos);
    return;
  }
  (*made)->start([](int, std::uint64_t) {});
  CHECK((*made)->wait().has_value());
  CHECK(read_memory_facts({}, std::nullopt).huge_pages_free + how.pool_bytes / huge_page_bytes ==
        facts.huge_pages_free);
}
