#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/arena.hpp"

using namespace kvd;

TEST_CASE("a shareable range is a file that others read and nobody else writes or resizes") {
  constexpr std::size_t bytes = 8 << 20;
  const auto pages = shareable_page_supply();
  const auto at = pages->map(bytes, false);
  REQUIRE(at.has_value());
  CHECK(reinterpret_cast<std::uintptr_t>(*at) % huge_page_bytes == 0);
  REQUIRE(pages->lock(*at, bytes).has_value());
  REQUIRE(pages->populate(*at, bytes).has_value());
  const int fd = pages->file_of(*at);
  REQUIRE(fd >= 0);
  (*at)[12345] = std::byte{7};

  void* const seen = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  REQUIRE(seen != MAP_FAILED);
  CHECK(static_cast<const std::byte*>(seen)[12345] == std::byte{7});
  (*at)[12345] = std::byte{8};
  CHECK(static_cast<const std::byte*>(seen)[12345] == std::byte{8});
  CHECK(::mprotect(seen, bytes, PROT_READ | PROT_WRITE) != 0);
  ::munmap(seen, bytes);

  CHECK(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  CHECK(::ftruncate(fd, 4096) != 0);
  CHECK(::ftruncate(fd, 2 * bytes) != 0);
  const char byte = 1;
  CHECK(::pwrite(fd, &byte, 1, 0) != 1);

  pages->unmap(*at, bytes);
  CHECK(::fcntl(fd, F_GETFD) < 0);
  CHECK(pages->file_of(*at) == -1);
}

TEST_CASE("all of a shareable range is zero, touched, and stays what was written") {
  constexpr std::size_t bytes = 4 << 20;
  const auto pages = shareable_page_supply();
  const auto at = pages->map(bytes, false);
  REQUIRE(at.has_value());
  REQUIRE(pages->populate(*at, bytes).has_value());
  bool zero = true;
  for (std::size_t i = 0; i < bytes; ++i)
    zero = zero && (*at)[i] == std::byte{0};
  CHECK(zero);
  std::memset(*at, 3, bytes);
  // A second call, as after a failed start, changes nothing.
  REQUIRE(pages->populate(*at, bytes).has_value());
  CHECK((*at)[bytes - 1] == std::byte{3});
  pages->unmap(*at, bytes);
}
