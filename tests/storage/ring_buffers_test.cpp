// Requests on memory that is registered with io_uring: what becomes of them, and that all bytes
// move.

#include <cerrno>
#include <deque>

#include <sys/resource.h>
#include <unistd.h>

#include "storage/open_file.hpp"
#include "storage/uring_file.hpp"
#include "tests/storage/file_fixture.hpp"

using namespace kvd;
using kind = file_io::kind;

namespace {

constexpr std::size_t file_pages = 4096;

// A file of 16 MiB and memory, of which pages 0 to 1023 and 1024 to 2047 are registered by the
// test.
struct registered_file {
  scratch_folder folder;
  pages memory{3000};
  pages copy{3000};
  opened_file it;
  std::string why_not;

  explicit registered_file(bool vectored = true, unsigned depth = 64) {
    open_options how;
    how.bytes = file_pages * page_bytes;
    how.backend = file_backend::uring;
    how.depth = depth;
    how.vectored = vectored;
    auto file = open_block_file(folder.path("tier"), how);
    if (!file) {
      why_not = file.error().detail;
      return;
    }
    it = std::move(*file);
    if (!it.direct) why_not = it.why_not;
    for (const std::size_t first : {0U, 1024U}) {
      const auto added = use(first, 1024);
      if (!added) why_not = added.error().detail;
    }
    memory.fill(1);
  }
  block_file& file() { return *it.file; }
  result<void> use(std::size_t first, std::size_t count) {
    return file().use_memory(memory.all().subspan(first * page_bytes, count * page_bytes));
  }
  // False, with a message, where nothing can be registered.
  bool possible() const {
    if (!why_not.empty()) MESSAGE("not tested: " << why_not);
    return why_not.empty();
  }
  io_piece piece(std::size_t page, std::size_t count) const {
    return {memory.page(page), count * page_bytes};
  }
  // Writes the pieces, reads them into other memory, and then back into zeroed pieces. Returns how
  // many operations that were, and how many of them fixed.
  std::pair<std::uint64_t, std::uint64_t> round_trip(const std::vector<io_piece>& list) {
    const auto before = file().counts();
    std::uint64_t bytes = 0;
    for (const auto& each : list)
      bytes += each.bytes;
    REQUIRE(run_io(file(), kind::write, page_bytes, list) == 0);
    REQUIRE(run_io(file(), kind::read, page_bytes, {{copy.page(0), bytes}}) == 0);
    CHECK(same(list));
    for (const auto& each : list)
      std::memset(each.at, 0, each.bytes);
    REQUIRE(run_io(file(), kind::read, page_bytes, list) == 0);
    CHECK(same(list));
    const auto after = file().counts();
    return {after.operations - before.operations - 1,
            after.fixed_operations - before.fixed_operations};
  }
  bool same(const std::vector<io_piece>& list) const {
    const auto* from = copy.page(0);
    bool all = true;
    for (const auto& each : list) {
      all = all && std::memcmp(each.at, from, each.bytes) == 0;
      from += each.bytes;
    }
    return all;
  }
  bool vectored() {
    const std::vector<io_piece> two{piece(0, 64), piece(70, 64)};
    return round_trip(two).second == 2;
  }
};

using operations = std::pair<std::uint64_t, std::uint64_t>;

}  // namespace

TEST_CASE("a record in registered memory is a plain header and fixed operations") {
  registered_file f;
  if (!f.possible()) return;
  CHECK(f.file().counts().registered_buffers == 2);
  const auto header = f.piece(2500, 1);
  if (!f.vectored()) {
    MESSAGE("not tested: the kernel has no vectored fixed operations");
    return;
  }
  // For the write and for the read: one operation for the header, one a buffer.
  CHECK(f.round_trip({header, f.piece(0, 256)}) == operations{4, 2});
  CHECK(f.round_trip({header, f.piece(900, 100), f.piece(300, 7), f.piece(20, 100)}) ==
        operations{4, 2});
  CHECK(f.round_trip({header, f.piece(100, 256), f.piece(1500, 256)}) == operations{6, 4});
  // More pieces than one operation takes.
  std::vector<io_piece> many{header};
  for (std::size_t i = 1024; i > 0; --i)
    many.push_back(f.piece(i - 1, 1));
  CHECK(f.round_trip(many) == operations{4, 2});
  for (std::size_t i = 1024; i > 0; --i)
    many.push_back({f.memory.page(i - 1), 0});
  CHECK(f.round_trip(many) == operations{4, 2});
}

TEST_CASE("what is small, unregistered or across two buffers moves as one plain operation") {
  registered_file f;
  if (!f.possible()) return;
  const auto header = f.piece(2500, 1);
  CHECK(f.round_trip({header, f.piece(0, 8)}) == operations{2, 0});
  CHECK(f.round_trip({header, f.piece(0, 128)}) == operations{2, 0});
  CHECK(f.round_trip({header, f.piece(2600, 256)}) == operations{2, 0});
  CHECK(f.round_trip({header, f.piece(900, 250)}) == operations{2, 0});
  CHECK(f.round_trip({header, f.piece(1900, 250)}) == operations{2, 0});
  // Too many changes between the two buffers to be worth an operation each.
  std::vector<io_piece> crosswise{header};
  for (std::size_t i = 0; i < 10; ++i)
    crosswise.push_back(f.piece(i % 2 * 1024 + 100 * i, 100));
  CHECK(f.round_trip(crosswise) == operations{2, 0});
}

TEST_CASE("without vectored fixed operations each large piece is one of its own") {
  registered_file f(false);
  if (!f.possible()) return;
  CHECK_FALSE(f.vectored());
  const auto header = f.piece(2500, 1);
  CHECK(f.round_trip({header, f.piece(0, 256)}) == operations{4, 2});
  CHECK(f.round_trip({header, f.piece(0, 100), f.piece(100, 156)}) == operations{4, 2});
  CHECK(f.round_trip({header, f.piece(0, 300), f.piece(400, 300)}) == operations{6, 4});
  std::vector<io_piece> small{header};
  for (std::size_t i = 0; i < 64; ++i)
    small.push_back(f.piece(2 * i, 1));
  CHECK(f.round_trip(small) == operations{2, 0});
}

TEST_CASE("a request of several operations ends once, with the first error, after the last") {
  for (const unsigned depth : {1U, 2U, 3U, 64U}) {
    CAPTURE(depth);
    registered_file f(true, depth);
    if (!f.possible()) return;
    const auto header = f.piece(2500, 1);
    std::deque<counted_io> requests;
    for (std::size_t i = 0; i < 20; ++i) {
      requests.emplace_back(kind::write, i * 200 * page_bytes,
                            std::vector<io_piece>{header, f.piece(i * 40, 256)});
      requests.back().submit_to(f.file());
    }
    poll_until(f.file(), 20);
    for (const auto& io : requests)
      CHECK((io.calls == 1 && io.error == 0));
    // The header fails and the payload does not, and the other way around.
    CHECK(run_io(f.file(), kind::read, 0, {{nullptr, page_bytes}, f.piece(0, 256)}) == EFAULT);
    CHECK(run_io(f.file(), kind::read, 0, {f.piece(0, 256), {nullptr, page_bytes}}) == EFAULT);
  }
}

TEST_CASE("a fixed read that comes short of the file's end is told so") {
  registered_file f;
  if (!f.possible()) return;
  REQUIRE(::truncate(f.it.identity.path.c_str(), 300 * page_bytes) == 0);
  const auto header = f.piece(2500, 1);
  const std::vector<io_piece> list{header, f.piece(0, 100), f.piece(200, 100)};
  CHECK(run_io(f.file(), kind::read, 99 * page_bytes, list) == 0);
  CHECK(run_io(f.file(), kind::read, 150 * page_bytes, list) == ENODATA);
  CHECK(run_io(f.file(), kind::read, 1000 * page_bytes, list) == ENODATA);
}

TEST_CASE("memory that may not be locked is refused with the limit's name and moves all the same") {
  registered_file f;
  if (!f.possible()) return;
  // Root may lock without a limit, so the kernel is asked for what it never registers.
  const auto refused = f.file().use_memory({static_cast<std::byte*>(nullptr) + page_bytes, 4096});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::io);
  CHECK(refused.error().detail.find("registering a buffer") != std::string::npos);
  CHECK(f.file().counts().registered_buffers == 2);
  CHECK(f.round_trip({f.piece(2500, 1), f.piece(2600, 256)}) == operations{2, 0});
  CHECK(f.round_trip({f.piece(2500, 1), f.piece(0, 256)}) == operations{4, 2});
}

TEST_CASE("registered memory goes with the file, requests under way or not") {
  for (const bool busy : {false, true}) {
    registered_file f;
    if (!f.possible()) return;
    counted_io io(kind::write, 0, {f.piece(2500, 1), f.piece(0, 1000)});
    if (busy) io.submit_to(f.file());
    f.it.file.reset();
    CHECK(io.calls == (busy ? 1 : 0));
    if (busy) CHECK(io.error == 0);
    // The next owner of the file finds the memory free to be registered anew.
    registered_file next;
    CHECK(next.file().counts().registered_buffers == 2);
  }
}
