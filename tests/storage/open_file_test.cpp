#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "storage/file_lock.hpp"
#include "storage/file_space.hpp"
#include "storage/open_file.hpp"
#include "storage/thread_file.hpp"
#include "tests/storage/file_fixture.hpp"

using namespace kvd;

namespace {

open_options small(std::uint64_t bytes = std::uint64_t{1} << 20) {
  open_options how;
  how.bytes = bytes;
  how.threads = 2;
  how.backend = file_backend::threads;
  return how;
}

std::uint64_t blocks_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

std::string refusal(const std::string& path, const open_options& how, errc code) {
  const auto file = open_block_file(path, how);
  REQUIRE(!file);
  CHECK(file.error().code == code);
  return file.error().detail;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// io_uring_setup() answers EPERM to this thread from now on, as in most containers.
bool forbid_io_uring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("a new file has its size, its blocks, and only zeros") {
  const scratch_folder folder;
  const auto it = open_block_file(folder.path("tier"), small());
  REQUIRE_MESSAGE(it, it.error().detail);
  CHECK(it->created);
  CHECK(it->file->bytes() == 1 << 20);
  CHECK(std::filesystem::file_size(folder.path("tier")) == 1 << 20);
  CHECK(blocks_of(folder.path("tier")) >= 1 << 20);
  const pages read(256);
  read.fill(1);
  const pages zeros(256);
  CHECK(run_io(*it->file, file_io::kind::read, 0, {{read.page(0), 256 * page_bytes}}) == 0);
  CHECK(std::memcmp(read.page(0), zeros.page(0), 256 * page_bytes) == 0);
  CHECK(file_health(it->identity));
}

TEST_CASE("where io_uring is forbidden, threads are chosen and the reason is named") {
  const scratch_folder folder;
  std::thread apart([&folder] {
    if (!forbid_io_uring()) {
      MESSAGE("not tested, no seccomp here: " << std::strerror(errno));
      return;
    }
    auto how = small();
    how.backend = file_backend::best;
    {
      const auto it = open_block_file(folder.path("tier"), how);
      REQUIRE_MESSAGE(it, it.error().detail);
      CHECK(std::string(it->file->backend()).starts_with("threads"));
      CHECK_MESSAGE(has(it->why_not, "io_uring_setup: Operation not permitted"), it->why_not);
      const pages one(1);
      CHECK(run_io(*it->file, file_io::kind::write, 0, {{one.page(0), page_bytes}}) == 0);
    }
    how.backend = file_backend::uring;
    CHECK(has(refusal(folder.path("tier"), how, errc::io), "Operation not permitted"));
  });
  apart.join();
}

TEST_CASE("a file in use is refused, and the holder is named") {
  const scratch_folder folder;
  const auto path = folder.path("tier");
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int held = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    const bool locked = lock_file(held, path).has_value();
    if (!locked || ::write(ready[1], "x", 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  const auto text = refusal(path, small(), errc::unavailable);
  CHECK_MESSAGE(has(text, std::to_string(child)), text);
  CHECK(std::filesystem::file_size(path) == 0);  // not touched
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  auto mine = open_block_file(path, small());
  REQUIRE_MESSAGE(mine, mine.error().detail);
  CHECK(has(refusal(path, small(), errc::unavailable), "itself"));
  mine->file.reset();
  CHECK(open_block_file(path, small()));
}

TEST_CASE("the holder of a lock is found by device and inode") {
  constexpr auto text = "1: POSIX  ADVISORY  WRITE 11 fd:01:77 0 EOF\n"
                        "2: FLOCK  ADVISORY  WRITE 12 fd:01:78 0 EOF\n"
                        "3: FLOCK  ADVISORY  WRITE 13 fd:02:77 0 EOF\n"
                        "4: FLOCK  ADVISORY  WRITE 14 fd:01:77 0 EOF\n"
                        "4: -> FLOCK  ADVISORY  WRITE 15 fd:01:77 0 EOF\n"
                        "5: OFDLCK ADVISORY  WRITE -1 fd:01:77 0 EOF";
  CHECK(flock_holder(text, makedev(0xfd, 1), 77) == 14);
  CHECK(flock_holder(text, makedev(0xfd, 9), 78) == 12);
  CHECK(flock_holder(text, makedev(0xfd, 1), 79) == 0);
  CHECK(flock_holder("", makedev(0xfd, 1), 77) == 0);
}

TEST_CASE("only a regular file under its own name is taken") {
  const scratch_folder folder;
  std::filesystem::create_directory(folder.path("folder"));
  std::ofstream(folder.path("real")) << "x";
  std::filesystem::create_symlink(folder.path("real"), folder.path("link"));
  std::filesystem::create_symlink(folder.path("nothing"), folder.path("dangling"));
  REQUIRE(::mkfifo(folder.path("fifo").c_str(), 0600) == 0);
  const auto refused = [](const std::string& path) {
    return refusal(path, small(), errc::invalid_argument);
  };
  CHECK(has(refused(folder.path("folder")), "is a directory"));
  CHECK(has(refused(folder.path("link")), "is a symbolic link"));
  CHECK(has(refused(folder.path("dangling")), "is a symbolic link"));
  CHECK(has(refused(folder.path("fifo")), "is a FIFO"));
  CHECK(has(refused("/dev/full"), "is a character device"));
  CHECK(has(refused(folder.path("none/tier")), "there is no folder"));
  CHECK(has(refused(""), "no path"));
  CHECK(!std::filesystem::exists(folder.path("nothing")));
  CHECK(std::filesystem::file_size(folder.path("real")) == 1);
}

TEST_CASE("a larger file stays as it is until it is wiped") {
  const scratch_folder folder;
  const auto path = folder.path("tier");
  const pages one(1);
  one.fill(9);
  {
    const auto it = open_block_file(path, small(2 << 20));
    REQUIRE_MESSAGE(it, it.error().detail);
    CHECK(run_io(*it->file, file_io::kind::write, 0, {{one.page(0), page_bytes}}) == 0);
  }
  auto how = small(1 << 20);
  {
    const auto it = open_block_file(path, how);
    REQUIRE(it);
    CHECK(!it->created);
    CHECK(it->file->bytes() == 2 << 20);
  }
  {
    const auto it = open_block_file(path, small(0));
    REQUIRE(it);
    CHECK(it->file->bytes() == 2 << 20);
  }
  how.wipe = true;
  const auto it = open_block_file(path, how);
  REQUIRE(it);
  CHECK(it->file->bytes() == 1 << 20);
  const pages zeros(1);
  CHECK(run_io(*it->file, file_io::kind::read, 0, {{one.page(0), page_bytes}}) == 0);
  CHECK(one.same_page(0, zeros, 0));
}

TEST_CASE("growing keeps the floor of free space, and a refused new file is removed") {
  const scratch_folder folder;
  const auto path = folder.path("tier");
  auto how = small();
  how.free_floor = std::uint64_t{1} << 60;
  const auto text = refusal(path, how, errc::limit_exceeded);
  CHECK_MESSAGE(has(text, "1mb wanted"), text);
  CHECK_MESSAGE(has(text, "free"), text);
  CHECK_MESSAGE(has(text, "1048576tb must stay free"), text);
  CHECK(!std::filesystem::exists(path));
  { REQUIRE(open_block_file(path, small())); }
  CHECK(open_block_file(path, how));  // has its blocks: nothing more is needed
  how.bytes = 2 << 20;
  refusal(path, how, errc::limit_exceeded);
  CHECK(std::filesystem::file_size(path) == 1 << 20);
  refusal(folder.path("empty"), small(0), errc::invalid_argument);
  refusal(folder.path("odd"), small(5000), errc::invalid_argument);
}

TEST_CASE("the holes of a sparse file are filled") {
  const scratch_folder folder;
  const auto path = folder.path("tier");
  std::ofstream(path) << "x";
  REQUIRE(::truncate(path.c_str(), 1 << 20) == 0);
  CHECK(blocks_of(path) < 1 << 20);
  CHECK(open_block_file(path, small()));
  CHECK(blocks_of(path) >= 1 << 20);
}

TEST_CASE("a file that was removed, replaced or cut is not healthy") {
  const scratch_folder folder;
  const auto path = folder.path("tier");
  const auto it = open_block_file(path, small());
  REQUIRE(it);
  CHECK(file_health(it->identity));
  REQUIRE(::truncate(path.c_str(), 4096) == 0);
  CHECK(file_health(it->identity).error().code == errc::io);
  std::filesystem::rename(path, folder.path("elsewhere"));
  CHECK(has(file_health(it->identity).error().detail, "removed"));
  std::ofstream(path) << "x";
  CHECK(has(file_health(it->identity).error().detail, "replaced"));
}

TEST_CASE("on tmpfs the file is buffered and says so") {
  const scratch_folder folder(true);
  const auto it = open_block_file(folder.path("tier"), small());
  REQUIRE_MESSAGE(it, it.error().detail);
  CHECK(!it->direct);
  CHECK(it->file->backend() == "threads, buffered");
  CHECK_MESSAGE(has(it->why_not, "tmpfs"), it->why_not);
}
