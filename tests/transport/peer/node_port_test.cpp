#include "transport/peer/open_peer_port.hpp"

#include <algorithm>
#include <filesystem>
#include <thread>

#include <doctest/doctest.h>
#include <netinet/in.h>

#include "tests/transport/peer/peer_node.hpp"
#include "tests/transport/peer/tracked_read.hpp"
#include "transport/peer/peer_address.hpp"

using namespace kvd;
using namespace std::chrono_literals;

namespace {

std::string each_link() {
  std::string link;
  SUBCASE("tcp") {
    link = "tcp";
  }
  SUBCASE("shm") {
    link = "shm";
  }
  SUBCASE("rdma") {
    link = "rdma";
  }
  return link;
}

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

}  // namespace

TEST_CASE("pieces of every size arrive over every link") {
  const auto link = each_link();
  known_pool pool(32 << 20, 1);
  const peer_pool nothing;
  peer_node holder(only(link), pool.offered());
  peer_node reader(only(link), nothing);
  const auto remote = *reader.port->open(holder.port->address());
  CHECK(name(remote->kind()) == (link == "shm" ? "mapped" : link));
  for (const auto& [each, step] : {std::pair{1, 40099},
                                   {4096, 8192},
                                   {100, 100 << 5},
                                   {65536, 65536},
                                   {5 << 20, 6 << 20},
                                   {32 << 20, 32 << 20}}) {
    tracked_read read(pieces_of(32 << 20, each, step));
    read.deadline = reader.time.now() + 30s;
    REQUIRE(reader.port->read(remote, read));
    read.wait_released();
    CHECK(read.outcome() == peer_outcome::done);
    CHECK(read.arrived() == read.pieces.size());
    CHECK(read.right(pool));
  }
  CHECK(remote->connected());
  CHECK(reader.metrics.inflight_bytes.value() == 0);
  CHECK(reader.metrics.quarantined_bytes.value() == 0);
  CHECK(reader.metrics.reads_inflight.value() == 0);
  CHECK(reader.metrics.reads_queued.value() == 0);
}

TEST_CASE("many reads from several threads all arrive") {
  const auto link = each_link();
  known_pool pool(8 << 20, 1);
  peer_node holder(only(link), pool.offered());
  peer_node reader(only(link), pool.offered());
  const auto remote = *reader.port->open(holder.port->address());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      seeded_random random(static_cast<std::uint64_t>(i));
      for (int n = 0; n < 20; ++n) {
        wanted_pieces wanted;
        for (std::uint64_t k = 0; k <= random.below(20); ++k)
          wanted.emplace_back(random.below(4 << 20), 1 + random.below(300 << 10));
        tracked_read read(wanted);
        if (!reader.port->read(remote, read)) {
          ++wrong;
          continue;
        }
        read.wait_released();
        if (read.outcome() != peer_outcome::done || !read.right(pool)) ++wrong;
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a piece beyond the holder's pool is refused, and the link goes on") {
  const auto link = each_link();
  known_pool pool(4 << 20, 1);
  const peer_pool nothing;
  peer_node holder(only(link), pool.offered());
  peer_node reader(only(link), nothing);
  const auto remote = *reader.port->open(holder.port->address());
  for (const auto& [offset, bytes] :
       wanted_pieces{{4 << 20, 1}, {(4 << 20) - 1, 2}, {1ull << 60, 5}}) {
    tracked_read bad({{offset, bytes}});
    REQUIRE(reader.port->read(remote, bad));
    bad.wait_released();
    CHECK(bad.outcome() == peer_outcome::refused);
    CHECK(bad.untouched(0));
  }
  tracked_read good({{0, 4096}});
  REQUIRE(reader.port->read(remote, good));
  good.wait_released();
  CHECK(good.outcome() == peer_outcome::done);
}

TEST_CASE("killing the holder in the middle of reads never gives a wrong byte or a hang") {
  const auto link = each_link();
  constexpr std::size_t bytes = 32 << 20;
  known_pool same(bytes, 7);
  for (int round = 0; round < 5; ++round) {
    holder_process holder(link, bytes, 7);
    const peer_pool nothing;
    peer_node reader(only(link), nothing);
    const auto remote = *reader.port->open(holder.address());
    std::vector<std::unique_ptr<tracked_read>> reads;
    for (int i = 0; i < 8; ++i) {
      reads.push_back(std::make_unique<tracked_read>(pieces_of(bytes, 256 << 10, 256 << 10)));
      reads.back()->deadline = reader.time.now() + 20s;
      REQUIRE(reader.port->read(remote, *reads.back()));
    }
    // Somewhere in the middle: after some of the reads.
    reads[static_cast<std::size_t>(round)]->wait_ended();
    holder.kill();
    for (const auto& read : reads) {
      read->wait_released();
      CHECK(read->right(same));
      CHECK((read->outcome() == peer_outcome::done || read->outcome() == peer_outcome::link_lost ||
             read->outcome() == peer_outcome::unreachable));
    }
    CHECK(reader.metrics.quarantined_bytes.value() == 0);
    // The next one is told at once, not by its deadline.
    tracked_read after({{0, 4096}});
    after.deadline = reader.time.now() + 20s;
    REQUIRE(reader.port->read(remote, after));
    after.wait_released();
    CHECK(after.outcome() != peer_outcome::timed_out);
  }
}

TEST_CASE("a holder that hangs costs the deadline, and its late bytes land nowhere") {
  std::string link;
  SUBCASE("tcp") {
    link = "tcp";
  }
  SUBCASE("rdma") {
    link = "rdma";
  }
  constexpr std::size_t bytes = 64 << 20;
  known_pool same(bytes, 7);
  holder_process holder(link, bytes, 7);
  const peer_pool nothing;
  peer_node reader(only(link), nothing);
  const auto remote = *reader.port->open(holder.address());
  tracked_read first({{0, 4096}});
  REQUIRE(reader.port->read(remote, first));
  first.wait_released();
  REQUIRE(first.outcome() == peer_outcome::done);
  holder.stop();
  tracked_read hung(pieces_of(bytes, 1 << 20, 1 << 20));
  hung.deadline = reader.time.now() + 700ms;
  REQUIRE(reader.port->read(remote, hung));
  hung.wait_released();
  CHECK(reader.time.now() - hung.deadline < 5s);
  CHECK(hung.outcome() == peer_outcome::timed_out);
  CHECK(hung.right(same));
  // The memory is the caller's again: whatever it writes there stays.
  std::vector<std::size_t> mine;
  for (std::size_t i = 0; i < hung.pieces.size(); ++i) {
    if (hung.states[i] == piece_state::arrived) continue;
    std::fill_n(hung.pieces[i].to, hung.pieces[i].bytes, tracked_read::canary);
    mine.push_back(i);
  }
  CHECK(!mine.empty());
  holder.go_on();
  tracked_read again(pieces_of(bytes, 1 << 20, 1 << 20));
  again.deadline = reader.time.now() + 30s;
  REQUIRE(reader.port->read(remote, again));
  again.wait_released();
  CHECK(again.outcome() == peer_outcome::done);
  CHECK(again.right(same));
  for (const auto piece : mine)
    CHECK(hung.untouched(piece));
}

TEST_CASE("a holder that hangs does not matter to peers on its host") {
  constexpr std::size_t bytes = 8 << 20;
  known_pool same(bytes, 7);
  holder_process holder("shm", bytes, 7);
  const peer_pool nothing;
  peer_node reader(only("shm"), nothing);
  const auto remote = *reader.port->open(holder.address());
  tracked_read first({{0, 4096}});
  REQUIRE(reader.port->read(remote, first));
  first.wait_released();
  holder.stop();
  tracked_read read(pieces_of(bytes, 64 << 10, 64 << 10));
  REQUIRE(reader.port->read(remote, read));
  read.wait_released();
  CHECK(read.outcome() == peer_outcome::done);
  CHECK(read.right(same));
}

// Not over UCX's TCP: a reader that closes its endpoint amid gets can make UCX 1.13.1 abort the
// holder's process, in the code that emulates them (ucp_get_req_handler). RDMA has no such code.
TEST_CASE("a port that is destroyed ends its reads and lets go of their memory") {
  std::string link;
  SUBCASE("tcp") {
    link = "tcp";
  }
  SUBCASE("shm") {
    link = "shm";
  }
  known_pool pool(32 << 20, 1);
  const peer_pool nothing;
  peer_node holder(only(link), pool.offered());
  std::vector<std::unique_ptr<tracked_read>> reads;
  {
    peer_node reader(only(link), nothing);
    const auto remote = *reader.port->open(holder.port->address());
    for (int i = 0; i < 10; ++i) {
      reads.push_back(std::make_unique<tracked_read>(pieces_of(32 << 20, 1 << 20, 1 << 20)));
      REQUIRE(reader.port->read(remote, *reads.back()));
    }
    reader.port->cancel(*reads.back());
  }
  for (const auto& read : reads) {
    CHECK(read->released());
    CHECK(read->right(pool));
  }
}

TEST_CASE("a cancelled read ends although its holder hangs") {
  holder_process holder("tcp", 2 << 20, 7);
  const peer_pool nothing;
  peer_node reader(only("tcp"), nothing);
  const auto remote = *reader.port->open(holder.address());
  holder.stop();
  tracked_read read({{0, 1 << 20}});
  REQUIRE(reader.port->read(remote, read));
  reader.port->cancel(read);
  read.wait_released();
  CHECK(read.outcome() == peer_outcome::cancelled);
}

TEST_CASE("failed connects leave neither files nor reads behind") {
  const peer_pool nothing;
  peer_node reader(only("tcp"), nothing);
  known_pool pool(4096, 1);
  std::string gone;
  {
    peer_node holder(only("tcp"), pool.offered());
    gone = holder.port->address();
  }
  const auto remote = *reader.port->open(gone);
  const auto before = open_files();
  for (int i = 0; i < 10'000; ++i) {
    tracked_read read({{0, 64}});
    REQUIRE(reader.port->read(remote, read));
    read.wait_released();
    REQUIRE(read.outcome() == peer_outcome::unreachable);
  }
  CHECK(open_files() == before);
  CHECK(reader.metrics.link_failures.value() == 10'000);
  CHECK(reader.metrics.reads_queued.value() == 0);
}

TEST_CASE("another run of the holder on the same port refuses to be read as the first") {
  const peer_pool nothing;
  known_pool pool(4096, 1);
  peer_node reader(only("tcp"), nothing);
  auto first = std::make_unique<peer_node>(only("tcp"), pool.offered());
  const auto stale = first->port->address();
  const auto port = decode_peer_address(stale)->stream->port;
  first.reset();
  auto options = only("tcp");
  options.listen_port = port;
  peer_node second(options, pool.offered());
  tracked_read read({{0, 64}});
  REQUIRE(reader.port->read(*reader.port->open(stale), read));
  read.wait_released();
  CHECK(read.outcome() == peer_outcome::refused);
  CHECK(read.untouched(0));
}

TEST_CASE("a port that is in use and a device that does not exist are clear errors") {
  const peer_pool nothing;
  known_pool pool(4096, 1);
  peer_node first(only("tcp"), pool.offered());
  const system_clock time;
  system_random random;
  peer_metrics metrics;
  auto options = only("tcp");
  options.listen_port = decode_peer_address(first.port->address())->stream->port;
  const auto second = open_peer_port(options, nothing, time, random, metrics);
  REQUIRE(!second);
  CHECK(second.error().detail.find("in use") != std::string::npos);
  options = only("tcp");
  options.nics = {"eth-none"};
  const auto third = open_peer_port(options, nothing, time, random, metrics);
  REQUIRE(!third);
  CHECK(third.error().code == errc::invalid_argument);
  CHECK(third.error().detail.find("there are: lo") != std::string::npos);
  options = only("carrier-pigeon");
  CHECK(!open_peer_port(options, nothing, time, random, metrics));
  options.links = {"rdma"};
  if (!std::filesystem::exists("/sys/class/infiniband")) {
    CHECK(!open_peer_port(options, nothing, time, random, metrics));
  }
}

TEST_CASE("ends without a link in common say what each has") {
  known_pool pool(4096, 1);
  const peer_pool nothing;
  peer_node holder(only("tcp"), pool.offered());
  peer_node reader(only("shm"), nothing);
  const auto remote = reader.port->open(holder.port->address());
  REQUIRE(!remote);
  CHECK(remote.error().code == errc::unavailable);
  CHECK(remote.error().detail.find("tcp") != std::string::npos);
  CHECK(!reader.port->open("nonsense"));
}

TEST_CASE("different numbers of devices at both ends are fine, and so is a lane that fails") {
  known_pool pool(16 << 20, 1);
  const peer_pool nothing;
  auto several = only("tcp");
  // The last one answers nobody; reads go over the others.
  several.advertise = {"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2"};
  peer_node holder(several, pool.offered());
  auto one = only("tcp");
  one.nics = {"lo"};
  peer_node reader(one, nothing);
  const auto remote = *reader.port->open(holder.port->address());
  for (int i = 0; i < 5; ++i) {
    tracked_read read({{0, 16 << 20}});
    REQUIRE(reader.port->read(remote, read));
    read.wait_released();
    CHECK(read.outcome() == peer_outcome::done);
    CHECK(read.right(pool));
  }
}

TEST_CASE("an IPv6 port is reached by name and by literal") {
  known_pool pool(4096, 1);
  const peer_pool nothing;
  auto options = only("tcp");
  options.listen_host = "::1";
  const system_clock time;
  system_random random;
  peer_metrics metrics;
  auto holder = open_peer_port(options, pool.offered(), time, random, metrics);
  if (!holder) return;  // no IPv6 here
  peer_node reader(only("tcp"), nothing);
  tracked_read read({{0, 4096}});
  REQUIRE(reader.port->read(*reader.port->open((*holder)->address()), read));
  read.wait_released();
  CHECK(read.outcome() == peer_outcome::done);
}
