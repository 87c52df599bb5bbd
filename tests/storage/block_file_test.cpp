#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <numeric>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "core/random.hpp"
#include "storage/open_file.hpp"
#include "storage/uring_file.hpp"
#include "tests/storage/file_fixture.hpp"

using namespace kvd;
using kind = file_io::kind;

namespace {

constexpr std::uint64_t file_bytes = std::uint64_t{16} << 20;

// One way of reading and writing a real file; each contract test runs over all of them.
struct medium {
  const char* name;
  file_backend backend;
  bool direct;
  bool in_memory;
};
constexpr medium media[] = {
    {"io_uring, direct", file_backend::uring, true, false},
    {"io_uring, buffered", file_backend::uring, false, true},
    {"threads, direct", file_backend::threads, true, false},
    {"threads, buffered", file_backend::threads, false, true},
};

struct opened {
  scratch_folder folder;
  opened_file it;
  explicit opened(bool in_memory) : folder(in_memory) {}
  block_file& file() { return *it.file; }
  std::string path() const { return it.identity.path; }
};

std::unique_ptr<opened> open_medium(const medium& m, open_options how = {}) {
  auto out = std::make_unique<opened>(m.in_memory);
  how.bytes = file_bytes;
  how.backend = m.backend;
  how.direct = m.direct;
  auto file = open_block_file(out->folder.path("tier"), how);
  if (!file && m.backend == file_backend::uring) {
    MESSAGE("not tested, io_uring is not to be had here: " << file.error().detail);
    return nullptr;
  }
  REQUIRE_MESSAGE(file, file.error().detail);
  out->it = std::move(*file);
  return out;
}

template<class Test>
void over_media(Test&& test, const open_options& how = {}) {
  for (const auto& m : media) {
    CAPTURE(m.name);
    if (auto with = open_medium(m, how)) test(*with);
  }
}

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  seeded_random random(seed);
  for (auto i = count; i > 1; --i)
    std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace

TEST_CASE("what was written from any number of pieces is read back into any other") {
  over_media([](opened& with) {
    for (const std::size_t count : {1u, 3u, 1024u, 3000u}) {
      CAPTURE(count);
      const pages source(count);
      const pages scattered(count);
      const pages whole(count);
      source.fill(count);
      const auto order = shuffled(count, count);
      std::vector<io_piece> from;
      std::vector<io_piece> to;
      for (const auto i : order) {
        from.push_back({source.page(i), page_bytes});
        to.push_back({scattered.page(count - 1 - i), page_bytes});
      }
      CHECK(run_io(with.file(), kind::write, 8192, from) == 0);
      CHECK(run_io(with.file(), kind::read, 8192, to) == 0);
      CHECK(run_io(with.file(), kind::read, 8192, {{whole.page(0), count * page_bytes}}) == 0);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        wrong += !source.same_page(order[i], whole, i);
        wrong += !source.same_page(i, scattered, count - 1 - i);
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("more requests than the ring is deep all finish once, in any order of offsets") {
  open_options how;
  how.depth = 4;
  how.threads = 2;
  over_media(
      [](opened& with) {
        constexpr std::size_t count = 400;
        const pages source(count);
        const pages target(count);
        source.fill(7);
        for (const bool reading : {false, true}) {
          std::deque<counted_io> requests;
          for (const auto i : shuffled(count, reading ? 1 : 2)) {
            auto* const at = reading ? target.page(i) : source.page(i);
            requests.emplace_back(reading ? kind::read : kind::write, i * page_bytes,
                                  std::vector<io_piece>{{at, page_bytes}});
            requests.back().submit_to(with.file());
          }
          poll_until(with.file(), count);
          for (const auto& io : requests)
            CHECK((io.calls == 1 && io.error == 0));
        }
        CHECK(std::memcmp(source.page(0), target.page(0), count * page_bytes) == 0);
      },
      how);
}

TEST_CASE("what cannot be done ends with an error in poll") {
  over_media([](opened& with) {
    const pages one(4);
    auto& file = with.file();
    CHECK(file.bytes() == file_bytes);
    CHECK(file.alignment() >= 512);
    CHECK(file.alignment() <= 4096);
    const std::vector<io_piece> two_pages{{one.page(0), 2 * page_bytes}};
    CHECK(run_io(file, kind::read, file_bytes, two_pages) == ENODATA);
    CHECK(run_io(file, kind::read, file_bytes - page_bytes, two_pages) == ENODATA);
    CHECK(run_io(file, kind::read, ~std::uint64_t{0} << 12, two_pages) == ENODATA);
    CHECK(run_io(file, kind::write, file_bytes - page_bytes, two_pages) == EFBIG);
    CHECK(run_io(file, kind::read, 100, two_pages) == EINVAL);
    CHECK(run_io(file, kind::write, 0, {{one.page(0) + 8, page_bytes}}) == EINVAL);
    CHECK(run_io(file, kind::write, 0, {{one.page(0), 100}}) == EINVAL);
    CHECK(run_io(file, kind::read, 0, {}) == 0);
    CHECK(run_io(file, kind::read, 0, {{one.page(0), 0}, {one.page(1), 0}}) == 0);
    CHECK(run_io(file, kind::write, 0, {{one.page(0), 0}, {one.page(1), page_bytes}}) == 0);
    if (with.it.direct) CHECK(run_io(file, kind::read, 0, {{nullptr, page_bytes}}) == EFAULT);
    CHECK(run_io(file, kind::sync, 0) == 0);
    CHECK(file.poll(std::chrono::milliseconds(0)) == 0);
  });
}

TEST_CASE("wake ends a wait, also one that begins later") {
  over_media([](opened& with) {
    auto& file = with.file();
    file.wake();
    CHECK(file.poll(std::chrono::hours(1)) == 0);
    std::atomic<bool> polled{false};
    std::thread other([&] {
      while (!polled.load())
        file.wake();
    });
    CHECK(file.poll(std::chrono::hours(1)) == 0);
    polled = true;
    other.join();
    file.poll(std::chrono::milliseconds(0));
    CHECK(file.poll(std::chrono::milliseconds(1)) == 0);
  });
}

TEST_CASE("a request's on_done may submit the next one") {
  over_media([](opened& with) {
    struct chain : file_io {
      block_file* file;
      int left = 50;
    };
    const pages one(1);
    const io_piece piece{one.page(0), page_bytes};
    chain link;
    link.file = &with.file();
    link.pieces = {&piece, 1};
    link.on_done = [](file_io& io, int error) noexcept {
      auto& self = static_cast<chain&>(io);
      if (error == 0 && --self.left > 0) self.file->submit(self);
    };
    with.file().submit(link);
    poll_until(with.file(), 50);
    CHECK(link.left == 0);
  });
}

TEST_CASE("the destructor waits for every request, sent or not") {
  for (const int polls : {0, 1}) {
    open_options how;
    how.depth = 8;
    over_media(
        [polls](opened& with) {
          const pages source(64);
          std::deque<counted_io> requests;
          for (std::size_t i = 0; i < 64; ++i) {
            requests.emplace_back(i % 16 == 5 ? kind::sync : kind::write, i * page_bytes,
                                  std::vector<io_piece>{{source.page(i), page_bytes}});
            requests.back().submit_to(with.file());
          }
          for (int i = 0; i < polls; ++i)
            with.file().poll(std::chrono::milliseconds(0));
          with.it.file.reset();
          for (const auto& io : requests)
            CHECK((io.calls == 1 && io.error == 0));
        },
        how);
  }
}

TEST_CASE("another thread may go on once what the earlier one sent has ended") {
  open_options how;
  how.depth = 8;
  for (const bool destroy : {false, true}) {
    over_media(
        [destroy](opened& with) {
          const pages source(64);
          std::deque<counted_io> requests;
          std::thread first([&] {
            CHECK(run_io(with.file(), kind::write, 0, {{source.page(0), page_bytes}}) == 0);
            for (std::size_t i = 0; i < 64; ++i) {
              requests.emplace_back(i % 16 == 5 ? kind::sync : kind::write, i * page_bytes,
                                    std::vector<io_piece>{{source.page(i), page_bytes}});
              requests.back().submit_to(with.file());
            }
          });
          first.join();
          if (destroy) {
            with.it.file.reset();
          } else {
            poll_until(with.file(), 64);
          }
          for (const auto& io : requests)
            CHECK((io.calls == 1 && io.error == 0));
        },
        how);
  }
}

TEST_CASE("a file that is cut under a reader ends its reads with ENODATA") {
  over_media([](opened& with) {
    const pages target(512);
    for (const off_t left : {file_bytes / 2, file_bytes / 4 + 100}) {
      REQUIRE(::truncate(with.path().c_str(), left) == 0);
      const auto end = static_cast<std::uint64_t>(left) / page_bytes * page_bytes;
      const std::vector<io_piece> all{{target.page(0), 512 * page_bytes}};
      CHECK(run_io(with.file(), kind::read, end - 512 * page_bytes, all) == 0);
      CHECK(run_io(with.file(), kind::read, end - 256 * page_bytes, all) == ENODATA);
      CHECK(run_io(with.file(), kind::read, file_bytes / 4 * 3, all) == ENODATA);
      CHECK(!file_health(with.it.identity));
    }
  });
}

TEST_CASE("one run inside a registered region is a fixed operation that moves the same bytes") {
  const pages region(600);
  const std::span<std::byte> regions[] = {region.all().first(256 * page_bytes),
                                          region.all().subspan(300 * page_bytes)};
  open_options how;
  how.regions = regions;
  over_media(
      [&](opened& with) {
        if (with.it.registered_buffers == 0) MESSAGE("no registered buffers: " << with.it.why_not);
        region.fill(3);
        const pages copy(600);
        // Inside, at the end of, across, between and behind the regions.
        for (const std::size_t at : {0u, 250u, 254u, 270u, 298u, 400u, 596u}) {
          CAPTURE(at);
          CHECK(run_io(with.file(), kind::write, at * page_bytes,
                       {{region.page(at), page_bytes}, {region.page(at + 1), 3 * page_bytes}}) ==
                0);
          CHECK(run_io(with.file(), kind::read, at * page_bytes,
                       {{copy.page(at), 4 * page_bytes}}) == 0);
          CHECK(std::memcmp(region.page(at), copy.page(at), 4 * page_bytes) == 0);
          std::memset(region.page(at), 0, 4 * page_bytes);
          CHECK(run_io(with.file(), kind::read, at * page_bytes,
                       {{region.page(at), 4 * page_bytes}}) == 0);
          CHECK(std::memcmp(region.page(at), copy.page(at), 4 * page_bytes) == 0);
        }
      },
      how);
}

TEST_CASE("a full file system is ENOSPC, and the file goes on when there is room again") {
  const scratch_folder folder;
  const auto root = folder.path("small");
  std::filesystem::create_directory(root);
  for (const auto backend : {file_backend::best, file_backend::threads}) {
    if (::mount("kvd-test", root.c_str(), "tmpfs", 0, "size=4m") != 0) {
      MESSAGE("not tested, no mount() here: " << std::strerror(errno));
      return;
    }
    open_options how;
    how.backend = backend;
    how.bytes = 8 << 20;
    const auto refused = open_block_file(root + "/large", how);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::limit_exceeded);
    CHECK(!std::filesystem::exists(root + "/large"));

    how.bytes = 1 << 20;
    auto it = open_block_file(root + "/tier", how);
    REQUIRE_MESSAGE(it, it.error().detail);
    CAPTURE(it->file->backend());
    const int hole = ::open((root + "/tier").c_str(), O_RDWR);
    CHECK(::fallocate(hole, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20) == 0);
    ::close(hole);
    const int full = ::open((root + "/full").c_str(), O_RDWR | O_CREAT, 0600);
    const std::string zeros(page_bytes, '\0');
    while (::write(full, zeros.data(), zeros.size()) > 0) {
    }
    const pages source(256);
    const std::vector<io_piece> all{{source.page(0), 256 * page_bytes}};
    CHECK(run_io(*it->file, kind::write, 0, all) == ENOSPC);
    CHECK(::ftruncate(full, 0) == 0);
    ::close(full);
    CHECK(run_io(*it->file, kind::write, 0, all) == 0);
    it->file.reset();
    std::filesystem::remove(root + "/tier");
    CHECK(::umount2(root.c_str(), MNT_DETACH) == 0);
  }
}
