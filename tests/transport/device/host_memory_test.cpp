#include "transport/device/host_memory.hpp"

#include <fstream>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "core/server_metrics.hpp"
#include "tests/transport/device/pickle_samples.hpp"
#include "tests/transport/device/shm_fixture.hpp"
#include "transport/device/inline_device.hpp"
#include "transport/device/wrapper.hpp"

using namespace kvd;
using kvd::test::shm_fixture;

namespace {

struct opener_fixture {
  fake_clock time;
  copy_metrics metrics;
  inline_device copier{16, time, metrics};
  host_opener opener{copier};

  auto open(const std::string& name, std::uint64_t offset, std::uint64_t size) {
    return opener.open(encode_host_wrapper({name, offset, size}));
  }
  std::string refusal(const std::string& name, std::uint64_t offset, std::uint64_t size) {
    const auto memory = open(name, offset, size);
    REQUIRE_FALSE(memory.has_value());
    CHECK(memory.error().code == errc::device);
    return memory.error().detail;
  }
};

// Lines of this process's memory map that name `object`.
int mappings_of(const std::string& object) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(object) != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("an opened tensor is the client's memory, not a copy of it") {
  opener_fixture f;
  shm_fixture object(8192);
  const auto memory = f.open(object.name(), 4096, 4096);
  REQUIRE(memory.has_value());
  CHECK((*memory)->size() == 4096);
  CHECK(&(*memory)->owner() == &f.copier);
  (*memory)->data()[5] = std::byte{9};
  CHECK(object.data()[4096 + 5] == std::byte{9});
}

TEST_CASE("tensors of one object share one mapping, which goes with the last of them") {
  opener_fixture f;
  shm_fixture object(16384);
  const auto before = mappings_of(object.name());
  auto first = f.open(object.name(), 0, 8192);
  auto second = f.open("/" + object.name(), 8192, 8192);
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  CHECK((*second)->data() == (*first)->data() + 8192);
  CHECK(mappings_of(object.name()) == before + 1);
  CHECK(f.opener.mapped_objects() == 1);
  first->reset();
  CHECK(mappings_of(object.name()) == before + 1);
  second->reset();
  CHECK(mappings_of(object.name()) == before);
  CHECK(f.opener.mapped_objects() == 0);
  CHECK(f.open(object.name(), 0, 16384).has_value());
}

TEST_CASE("a name that was created again is another object") {
  opener_fixture f;
  const auto name = shm_fixture::unused_name();
  shm_fixture old(4096, name);
  old.data()[0] = std::byte{1};
  const auto first = f.open(name, 0, 4096);
  old.unlink();
  shm_fixture fresh(4096, name);
  fresh.data()[0] = std::byte{2};
  const auto second = f.open(name, 0, 4096);
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  CHECK((*first)->data()[0] == std::byte{1});
  CHECK((*second)->data()[0] == std::byte{2});
  CHECK(f.opener.mapped_objects() == 2);
}

TEST_CASE("an object that has grown is opened in its new size while older tensors stay") {
  opener_fixture f;
  shm_fixture object(4096);
  auto first = f.open(object.name(), 0, 4096);
  object.resize(16384);
  const auto second = f.open(object.name(), 8192, 8192);
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  (*second)->data()[-8192] = std::byte{3};
  CHECK((*first)->data()[0] == std::byte{3});
  first->reset();
  CHECK(f.opener.mapped_objects() == 1);
  CHECK(f.open(object.name(), 0, 16384).has_value());
}

TEST_CASE("tensors may outlive their opener") {
  fake_clock time;
  copy_metrics metrics;
  inline_device copier{16, time, metrics};
  shm_fixture object(4096);
  std::shared_ptr<device_memory> memory;
  {
    host_opener opener(copier);
    memory = *opener.open(encode_host_wrapper({object.name(), 0, 4096}));
  }
  memory->data()[0] = std::byte{1};
  CHECK(object.data()[0] == std::byte{1});
}

TEST_CASE("a tensor beyond its object is refused with both sizes") {
  opener_fixture f;
  shm_fixture object(8192);
  CHECK(f.refusal(object.name(), 4096, 4097) ==
        fmt::format("shared memory '{}': tensor at offset 4096 of 4097 bytes does not fit into the "
                    "object's 8192 bytes",
                    object.name()));
  CHECK(f.refusal(object.name(), 8192, 1).find("does not fit") != std::string::npos);
  CHECK(f.refusal(object.name(), ~std::uint64_t{0} - 8, 8).find("does not fit") !=
        std::string::npos);
  CHECK(f.opener.mapped_objects() == 0);
}

TEST_CASE("an object that is missing, or no object at all, is refused by name") {
  opener_fixture f;
  CHECK(f.refusal("kvd_test_gone", 0, 1) ==
        "shared memory 'kvd_test_gone': No such file or directory");
  const auto name = shm_fixture::unused_name();
  REQUIRE(::mkfifo(("/dev/shm/" + name).c_str(), 0600) == 0);
  CHECK(f.refusal(name, 0, 1).find("not a shared-memory object") != std::string::npos);
  ::unlink(("/dev/shm/" + name).c_str());
}

TEST_CASE("an object too large to map is refused and leaves nothing behind") {
  opener_fixture f;
  shm_fixture object(0);
  object.resize(std::uint64_t{1} << 60);
  CHECK(f.refusal(object.name(), 0, 4096).find("cannot map 1152921504606846976 bytes") !=
        std::string::npos);
  CHECK(f.opener.mapped_objects() == 0);
}

TEST_CASE("a CUDA handle is refused by a process without CUDA") {
  opener_fixture f;
  const auto memory = f.opener.open(test::from_hex(test::pickle_protocol_4));
  REQUIRE_FALSE(memory.has_value());
  CHECK(memory.error().code == errc::device);
  CHECK(
      memory.error().detail ==
      "CUDA handle of GPU 'a1b2c3d4-0011-2233-4455-66778899aabb': this process has no CUDA device "
      "(host memory wrappers are accepted)");
}

TEST_CASE("bytes that are no wrapper are the caller's mistake") {
  opener_fixture f;
  const auto memory = f.opener.open({});
  REQUIRE_FALSE(memory.has_value());
  CHECK(memory.error().code == errc::invalid_argument);
}
