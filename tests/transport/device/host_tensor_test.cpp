#include <cstring>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.hpp"
#include "core/random.hpp"
#include "core/server_metrics.hpp"
#include "transport/device/host_memory.hpp"
#include "transport/device/host_tensor.hpp"
#include "transport/device/inline_device.hpp"
#include "transport/device/load_state.hpp"

namespace kvd {

namespace {

bool exists(const std::string& name) {
  const int fd = ::shm_open(("/" + name).c_str(), O_RDONLY, 0);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

}  // namespace

TEST_CASE("a part of a host tensor is opened by its wrapper and is the same memory") {
  seeded_random random(1);
  auto tensor = host_tensor::create(8192, random);
  REQUIRE(tensor);
  const system_clock time;
  copy_metrics metrics;
  inline_device copier(1, time, metrics);
  host_opener opener(copier);
  const auto opened = opener.open(tensor->wrapper(4096, 4096));
  REQUIRE(opened);
  REQUIRE((*opened)->size() == 4096);
  tensor->bytes()[4096] = std::byte{42};
  CHECK((*opened)->data()[0] == std::byte{42});
}

TEST_CASE("the engine's shared memory is unlinked with its owner, and only then") {
  seeded_random random(2);
  std::string name;
  {
    auto flag = load_flag::create(random);
    REQUIRE(flag);
    name = flag->name();
    const auto moved = std::move(*flag);
    CHECK(exists(name));
  }
  CHECK_FALSE(exists(name));
}

TEST_CASE("a load flag says what the server published") {
  seeded_random random(3);
  const system_clock time;
  auto flag = load_flag::create(random);
  REQUIRE(flag);
  CHECK(flag->state() == 0);
  auto server = load_state::attach(flag->name());
  REQUIRE(server);
  CHECK_FALSE(server->abandoned());
  server->publish(1);
  CHECK(flag->wait(time, time.now()));
  flag->reset();
  CHECK(flag->state() == 0);
  server->publish(-1);
  const auto failed = flag->wait(time, time.now());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == errc::device);
}

TEST_CASE("waiting for a load that does not end stops at the deadline") {
  seeded_random random(4);
  const fake_clock time;
  const auto flag = load_flag::create(random);
  REQUIRE(flag);
  const auto pending = flag->wait(time, time.now());
  REQUIRE_FALSE(pending);
  CHECK(pending.error().code == errc::cancelled);
}

TEST_CASE("a tensor larger than the memory of the machine is an error that names its size") {
  seeded_random random(5);
  const auto tensor = host_tensor::create(std::size_t{1} << 60, random);
  REQUIRE_FALSE(tensor);
  CHECK(tensor.error().code == errc::io);
  CHECK(tensor.error().detail.find("1152921504606846976") != std::string::npos);
}

}  // namespace kvd
