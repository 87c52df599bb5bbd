#include "transport/device/load_state.hpp"

#include <atomic>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include "tests/transport/device/shm_fixture.hpp"

using namespace kvd;
using kvd::test::shm_fixture;

namespace {

// The flag as PegaFlow's client creates it.
struct flag : shm_fixture {
  explicit flag(std::uint64_t bytes = 32, std::uint64_t offset = 8) : shm_fixture(bytes) {
    put<std::uint64_t>(0, offset);
    put<std::uint32_t>(8, 0x50464C44);
    put<std::uint32_t>(12, 1);
  }
  template<class T>
  void put(std::size_t at, T value) {
    std::memcpy(data() + at, &value, sizeof value);
  }
  std::int64_t state(std::size_t at = 16) const {
    return reinterpret_cast<const std::atomic<std::int64_t>*>(data() + at)
        ->load(std::memory_order_acquire);
  }
};

std::string refusal(std::string_view name) {
  const auto attached = load_state::attach(name);
  REQUIRE_FALSE(attached.has_value());
  CHECK(attached.error().code == errc::device);
  return attached.error().detail;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a client sees loaded and failed in its own flag") {
  for (const std::int64_t outcome : {1, -1}) {
    flag client;
    auto state = load_state::attach(client.name());
    REQUIRE(state.has_value());
    CHECK(client.state() == 0);
    state->publish(outcome);
    CHECK(client.state() == outcome);
  }
}

TEST_CASE("a client that watches its flag sees a failure in one piece") {
  for (int round = 0; round < 200; ++round) {
    flag client;
    auto state = load_state::attach(client.name());
    REQUIRE(state.has_value());
    std::atomic<bool> watching{false};
    std::int64_t first_seen = 0;
    std::thread watcher([&] {
      watching = true;
      while (first_seen == 0)
        first_seen = client.state();
    });
    while (!watching)
      std::this_thread::yield();
    state->publish(-1);
    watcher.join();
    REQUIRE(first_seen == -1);
  }
}

TEST_CASE("a flag may be named with its leading slash and moved by its offset") {
  flag client(64, 40);
  client.put<std::uint32_t>(40, 0x50464C44);
  client.put<std::uint32_t>(44, 1);
  auto state = load_state::attach("/" + client.name());
  REQUIRE(state.has_value());
  state->publish(-1);
  CHECK(client.state(48) == -1);
  CHECK(client.state(16) == 0);
}

TEST_CASE("a flag is abandoned once its client has unlinked it") {
  flag client;
  auto state = load_state::attach(client.name());
  REQUIRE(state.has_value());
  CHECK_FALSE(state->abandoned());
  client.unlink();
  CHECK(state->abandoned());
  state->publish(1);  // the client may still have it mapped
  CHECK(client.state() == 1);
}

TEST_CASE("a flag outlives the moves of its owner") {
  flag a;
  flag b;
  auto first = load_state::attach(a.name());
  auto second = load_state::attach(b.name());
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  load_state moved(std::move(*first));
  moved = std::move(*second);
  moved.publish(1);
  CHECK(a.state() == 0);
  CHECK(b.state() == 1);
}

TEST_CASE("publishing to a flag that was truncated harms nobody") {
  flag client;
  auto state = load_state::attach(client.name());
  REQUIRE(state.has_value());
  client.resize(0);
  state->publish(-1);
  state->publish(1);
}

TEST_CASE("attaching names what is wrong with a flag") {
  CHECK(contains(refusal("kvd_test_no_such_object"), "'kvd_test_no_such_object': No such file"));
  CHECK(contains(refusal(""), "is empty"));
  CHECK(contains(refusal("/"), "is empty"));
  CHECK(contains(refusal(".."), "is a directory"));
  CHECK(contains(refusal("a/b"), "'a/b' has a slash"));
  CHECK(contains(refusal("//a"), "has a slash"));
  CHECK(contains(refusal(std::string(256, 'x')), "has 256 bytes, at most 255"));
  CHECK(contains(refusal(std::string("a\0b", 3)), "'a\\x00b' has a byte that is not printable"));
  CHECK(contains(refusal(std::string(255, 'x')), "No such file"));

  shm_fixture small(31);
  CHECK(contains(refusal(small.name()), "31 bytes, at least 32"));
  shm_fixture empty(0);
  CHECK(contains(refusal(empty.name()), "0 bytes, at least 32"));
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{12},
                                     std::uint64_t{24}, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    flag client(32, offset);
    CHECK(contains(refusal(client.name()), fmt::format("flag offset {} is not", offset)));
  }
  flag magic;
  magic.put<std::uint32_t>(8, 0x12345678);
  CHECK(contains(refusal(magic.name()), "magic 0x12345678, expected 0x50464c44"));
  flag version;
  version.put<std::uint32_t>(12, 2);
  CHECK(contains(refusal(version.name()), "version 2, expected 1"));
}
