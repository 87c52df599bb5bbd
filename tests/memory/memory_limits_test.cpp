#include "memory/memory_limits.hpp"

#include <string>

#include <sys/resource.h>

#include <doctest/doctest.h>

#include "tests/memory/temporary_tree.hpp"

using namespace kvd;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t gib = 1024 * mib;

// A machine with 16 GiB available, nothing locked and no capabilities.
struct fake_machine {
  temporary_tree tree;
  fake_machine() {
    tree.write("proc/meminfo", "MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n");
    tree.write("proc/self/status", "Name:\tkvd\nVmLck:\t       0 kB\nCapEff:\t0000000000000000\n");
    tree.write("proc/self/cgroup", "0::/\n");
  }
  memory_facts read(memlock_limit memlock = std::nullopt) const {
    return read_memory_facts({tree.path("proc"), tree.path("cgroup"), tree.path("huge")}, memlock);
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a claim within every bound passes") {
  const fake_machine machine;
  const auto facts = machine.read(64 * gib);
  CHECK(!facts.cgroup.has_value());
  CHECK(*facts.available == 16 * gib);
  CHECK(check_claim(facts, 16 * gib, false).has_value());
}

TEST_CASE("user report 36: a low memlock limit is refused before allocating, with the exact fix") {
  const fake_machine machine;
  const auto refused = check_claim(machine.read(8 * mib), 8 * gib, false);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(has(refused.error().detail, "8589934592 bytes (8.0 GiB)"));
  CHECK(has(refused.error().detail, "8388608 bytes (8.0 MiB)"));
  CHECK(has(refused.error().detail, "`ulimit -l 8388608`"));
  CHECK(has(refused.error().detail, "LimitMEMLOCK=infinity"));
}

TEST_CASE("memory that is locked already counts towards the memlock limit") {
  const fake_machine machine;
  machine.tree.write("proc/self/status", "VmLck:\t    1024 kB\nCapEff:\t0000000000000000\n");
  const auto facts = machine.read(8 * mib);
  CHECK(facts.locked == mib);
  CHECK(check_claim(facts, 7 * mib, false).has_value());
  const auto refused = check_claim(facts, 7 * mib + 1, false);
  REQUIRE(!refused.has_value());
  CHECK(has(refused.error().detail, "`ulimit -l 8193`"));
}

TEST_CASE("who holds CAP_IPC_LOCK has no memlock limit, other capabilities do not help") {
  const fake_machine machine;
  machine.tree.write("proc/self/status", "CapEff:\t0000000000004000\n");
  CHECK(!machine.read(8 * mib).memlock.has_value());
  machine.tree.write("proc/self/status", "CapEff:\t0000000000003fff\n");
  CHECK(machine.read(8 * mib).memlock == 8 * mib);
}

TEST_CASE("user report 39: a cgroup v2 limit minus usage without page cache bounds the pool") {
  const fake_machine machine;
  machine.tree.write("cgroup/memory.max", "4294967296\n");
  machine.tree.write("cgroup/memory.high", "max\n");
  machine.tree.write("cgroup/memory.current", "3221225472\n");
  machine.tree.write("cgroup/memory.stat", "anon 1\nfile 2147483648\ninactive_file 1073741824\n"
                                           "active_file 1073741824\n");
  const auto facts = machine.read();
  REQUIRE(facts.cgroup.has_value());
  CHECK(facts.cgroup->version == 2);
  CHECK(facts.cgroup->used == 1 * gib);
  CHECK(facts.cgroup->left() == 3 * gib);
  CHECK(check_claim(facts, 3 * gib, false).has_value());
  const auto refused = check_claim(facts, 3 * gib + 1, false);
  REQUIRE(!refused.has_value());
  CHECK(has(refused.error().detail, "cgroup v2"));
  CHECK(has(refused.error().detail, "4294967296 bytes (4.0 GiB)"));
  CHECK(has(refused.error().detail, "at least 4294967297"));
  CHECK(has(refused.error().detail, "--pool-size 3072mb or less"));
}

TEST_CASE("memory.high counts like a limit, because pinned pages cannot be reclaimed") {
  const fake_machine machine;
  machine.tree.write("cgroup/memory.max", "max\n");
  machine.tree.write("cgroup/memory.high", "1073741824\n");
  machine.tree.write("cgroup/memory.current", "0\n");
  CHECK(machine.read().cgroup->left() == 1 * gib);
}

TEST_CASE("of nested cgroups the one with the least room counts") {
  const fake_machine machine;
  machine.tree.write("proc/self/cgroup", "0::/pod/container\n");
  machine.tree.write("cgroup/pod/memory.max", "4294967296\n");
  machine.tree.write("cgroup/pod/memory.current", "3758096384\n");
  machine.tree.write("cgroup/pod/container/memory.max", "2147483648\n");
  machine.tree.write("cgroup/pod/container/memory.current", "1073741824\n");
  const auto facts = machine.read();
  REQUIRE(facts.cgroup.has_value());
  CHECK(facts.cgroup->left() == 512 * mib);
  CHECK(facts.cgroup->path == machine.tree.path("cgroup/pod"));
}

TEST_CASE("a cgroup limit of max is no limit") {
  const fake_machine machine;
  machine.tree.write("cgroup/memory.max", "max\n");
  machine.tree.write("cgroup/memory.current", "1073741824\n");
  CHECK(!machine.read().cgroup.has_value());
}

TEST_CASE("cgroup v1 is read where the memory controller is mounted") {
  const fake_machine machine;
  machine.tree.write("proc/self/cgroup", "9:cpu,cpuacct:/other\n4:memory:/docker/abc\n0::/\n");
  machine.tree.write("cgroup/memory/docker/abc/memory.limit_in_bytes", "1073741824\n");
  machine.tree.write("cgroup/memory/docker/abc/memory.usage_in_bytes", "805306368\n");
  machine.tree.write("cgroup/memory/docker/abc/memory.stat",
                     "inactive_file 1\ntotal_inactive_file 268435456\ntotal_active_file 0\n");
  machine.tree.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto facts = machine.read();
  REQUIRE(facts.cgroup.has_value());
  CHECK(facts.cgroup->version == 1);
  CHECK(facts.cgroup->used == 512 * mib);
  CHECK(facts.cgroup->left() == 512 * mib);
  const auto refused = check_claim(facts, 1 * gib, false);
  CHECK(has(refused.error().detail, "memory.limit_in_bytes"));
}

TEST_CASE("inside a container the mount itself is the group when the path names one of the host") {
  const fake_machine machine;
  SUBCASE("v1") {
    machine.tree.write("proc/self/cgroup", "4:memory:/kubepods/pod1/abc\n");
    machine.tree.write("cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    machine.tree.write("cgroup/memory/memory.usage_in_bytes", "0\n");
  }
  SUBCASE("v2 with a path that leaves the namespace") {
    machine.tree.write("proc/self/cgroup", "0::/../../elsewhere\n");
    machine.tree.write("cgroup/memory.max", "1073741824\n");
    machine.tree.write("cgroup/memory.current", "0\n");
  }
  SUBCASE("v2 beside v1") {
    machine.tree.write("proc/self/cgroup", "4:memory:/\n0::/a\n");
    machine.tree.write("cgroup/unified/a/memory.max", "1073741824\n");
  }
  REQUIRE(machine.read().cgroup.has_value());
  CHECK(machine.read().cgroup->left() == 1 * gib);
}

TEST_CASE("a group that uses more than its limit has nothing left") {
  const fake_machine machine;
  machine.tree.write("cgroup/memory.max", "1048576\n");
  machine.tree.write("cgroup/memory.current", "2097152\n");
  CHECK(machine.read().cgroup->left() == 0);
}

TEST_CASE("more than MemAvailable is refused with what would fit") {
  const fake_machine machine;
  const auto refused = check_claim(machine.read(), 17 * gib, false);
  REQUIRE(!refused.has_value());
  CHECK(has(refused.error().detail, "MemAvailable"));
  CHECK(has(refused.error().detail, "--pool-size 16384mb or less"));
}

TEST_CASE("all broken bounds are reported at once") {
  const fake_machine machine;
  machine.tree.write("cgroup/memory.max", "1073741824\n");
  const auto refused = check_claim(machine.read(8 * mib), 20 * gib, false);
  REQUIRE(!refused.has_value());
  CHECK(has(refused.error().detail, "LimitMEMLOCK"));
  CHECK(has(refused.error().detail, "memory.max"));
  CHECK(has(refused.error().detail, "MemAvailable"));
}

TEST_CASE("missing huge pages are counted and the sysctl that helps is named") {
  const fake_machine machine;
  machine.tree.write("huge/hugepages-2048kB/nr_hugepages", "100\n");
  machine.tree.write("huge/hugepages-2048kB/free_hugepages", "80\n");
  machine.tree.write("huge/hugepages-2048kB/resv_hugepages", "30\n");
  const auto facts = machine.read(8 * mib);
  CHECK(facts.huge_pages_free == 50);
  // Neither memlock nor MemAvailable matters: these pages were set aside before.
  CHECK(check_claim(facts, 100 * mib, true).has_value());
  const auto refused = check_claim(facts, 100 * mib + 1, true);
  REQUIRE(!refused.has_value());
  CHECK(has(refused.error().detail, "needs 51 free huge pages"));
  CHECK(has(refused.error().detail, "100 are reserved and 50 of them free"));
  CHECK(has(refused.error().detail, "`sysctl vm.nr_hugepages=101`"));
}

TEST_CASE("files that are absent or make no sense are no limit, and no huge pages") {
  const temporary_tree tree;
  auto facts = read_memory_facts({tree.path("a"), tree.path("b"), tree.path("c")}, 8 * mib);
  CHECK(facts.memlock == 8 * mib);
  CHECK(!facts.cgroup.has_value());
  CHECK(!facts.available.has_value());
  CHECK(!check_claim(facts, 1, true).has_value());
  tree.write("a/self/cgroup", "\n:\n0:\n0::\n4:memory\n");
  tree.write("a/meminfo", "MemAvailable:\nMemAvailable: x kB\n");
  tree.write("b/memory.max", "-5\n");
  facts = read_memory_facts({tree.path("a"), tree.path("b"), tree.path("c")}, 8 * mib);
  CHECK(!facts.cgroup.has_value());
  CHECK(!facts.available.has_value());
}

TEST_CASE("this machine's own facts can be read") {
  const auto facts = read_memory_facts({}, read_memlock_limit());
  REQUIRE(facts.available.has_value());
  CHECK(*facts.available > 0);
  CHECK(raise_memlock().has_value());
  rlimit now{};
  REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &now) == 0);
  CHECK(now.rlim_cur == now.rlim_max);
}

TEST_CASE("sizes are printed exactly and in words") {
  CHECK(in_words(512) == "512 bytes");
  CHECK(in_words(1536) == "1536 bytes (1.5 KiB)");
  CHECK(in_words(32212254720) == "32212254720 bytes (30.0 GiB)");
}
