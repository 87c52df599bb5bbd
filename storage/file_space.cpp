#include "storage/file_space.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/units.hpp"

namespace kvd {

namespace {

constexpr std::uint32_t alignment_low = 512;
constexpr std::uint32_t alignment_high = 4096;

// Aligned for any direct I/O, zeroed. Null without memory.
std::unique_ptr<std::byte, decltype(&std::free)> aligned_zeros(std::size_t bytes) noexcept {
  auto* const at = static_cast<std::byte*>(std::aligned_alloc(alignment_high, bytes));
  if (at != nullptr) std::memset(at, 0, bytes);
  return {at, &std::free};
}

// Writes what fallocate() would have set aside. Zeros go where the file had no bytes.
int write_zeros(int fd, std::uint64_t from, std::uint64_t to) noexcept {
  constexpr std::size_t chunk = std::size_t{1} << 20;
  const auto zeros = aligned_zeros(chunk);
  if (zeros == nullptr) return ENOMEM;
  while (from < to) {
    // The first one ends where the rest is aligned.
    const auto bytes = std::min<std::uint64_t>(chunk - from % chunk, to - from);
    const auto moved = ::pwrite(fd, zeros.get(), bytes, static_cast<off_t>(from));
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved < 0 ? errno : ENOSPC;
    from += static_cast<std::uint64_t>(moved);
  }
  return 0;
}

int set_aside(int fd, std::uint64_t before, std::uint64_t wanted) noexcept {
  int error = 0;
  do {
    error = ::fallocate(fd, 0, 0, static_cast<off_t>(wanted)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != EOPNOTSUPP && error != EINVAL && error != ENOSYS) return error;
  if (::ftruncate(fd, static_cast<off_t>(wanted)) != 0) return errno;
  return write_zeros(fd, before, wanted);
}

struct direct_alignment {
  bool known = false;
  std::uint32_t bytes = 0;  // 0: the file takes no direct I/O
};

// By number: glibc before 2.37 has no names for the fields of STATX_DIOALIGN (Linux 6.1).
direct_alignment statx_alignment(int fd) noexcept {
  constexpr unsigned mask_dioalign = 0x2000;
  constexpr std::size_t memory_at = 0x98;
  constexpr std::size_t offset_at = 0x9c;
  alignas(8) std::array<std::byte, 256> raw{};
  if (::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, mask_dioalign, raw.data()) != 0) return {};
  const auto field = [&raw](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, raw.data() + at, sizeof value);
    return value;
  };
  if ((field(0) & mask_dioalign) == 0) return {};
  if (field(memory_at) == 0 || field(offset_at) == 0) return {true, 0};
  return {true, std::max(field(memory_at), field(offset_at))};
}

// What the device under the file says; 0 where it has none or may not be opened.
std::uint32_t device_sector(int fd) noexcept {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return 0;
  std::array<char, 64> path{};
  fmt::format_to_n(path.data(), path.size() - 1, "/dev/block/{}:{}", major(status.st_dev),
                   minor(status.st_dev));
  const int device = ::open(path.data(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (device < 0) return 0;
  int sector = 0;
  const bool told = ::ioctl(device, BLKSSZGET, &sector) == 0 && sector > 0;
  ::close(device);
  return told ? static_cast<std::uint32_t>(sector) : 0;
}

// Some file systems take the flag and refuse the reads.
int try_direct_read(int fd) noexcept {
  const auto page = aligned_zeros(alignment_high);
  if (page == nullptr) return ENOMEM;
  ssize_t moved = 0;
  do {
    moved = ::pread(fd, page.get(), alignment_high, 0);
  } while (moved < 0 && errno == EINTR);
  return moved < 0 ? errno : 0;
}

}  // namespace

error file_error(std::string_view path, std::string_view what, int number) {
  return {errc::io, fmt::format("{}: {}: {}", path, what, std::generic_category().message(number))};
}

result<void> grow_file(int fd, const std::string& path, std::uint64_t wanted,
                       std::uint64_t free_floor) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return tl::unexpected(file_error(path, "fstat", errno));
  const auto before = static_cast<std::uint64_t>(status.st_size);
  // A sparse file, of a copy for example, has fewer blocks than bytes.
  const auto held = static_cast<std::uint64_t>(status.st_blocks) * 512;
  if (before == wanted && held >= wanted) return {};
  const auto needed = wanted - std::min(held, wanted);
  struct statvfs room {};
  if (::fstatvfs(fd, &room) != 0) return tl::unexpected(file_error(path, "statvfs", errno));
  const auto free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (needed > free || free - needed < free_floor) {
    return fail(errc::limit_exceeded,
                fmt::format("{}: {} wanted needs {} more; the file system has {} free, of which "
                            "{} must stay free",
                            path, format_bytes(wanted), format_bytes(needed), format_bytes(free),
                            format_bytes(free_floor)));
  }
  if (const int number = set_aside(fd, before, wanted); number != 0) {
    // Best effort: the error below is what matters.
    if (::ftruncate(fd, status.st_size) != 0) errno = 0;
    return tl::unexpected(
        file_error(path, fmt::format("growing to {}", format_bytes(wanted)), number));
  }
  return {};
}

transfer_mode choose_transfer_mode(int fd, bool direct_wanted) noexcept {
  transfer_mode mode;
  const auto buffered = [&mode](std::string why) {
    mode.why_buffered = "buffered: " + std::move(why);
    return mode;
  };
  if (!direct_wanted) return buffered("asked for");
  struct statfs system {};
  // It takes the flag, and copies through its page cache as ever.
  if (::fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC) {
    return buffered("tmpfs is a page cache");
  }
  const auto told = statx_alignment(fd);
  if (told.known && told.bytes == 0) return buffered("the file system has no direct I/O");
  auto alignment = told.known ? told.bytes : device_sector(fd);
  if (alignment == 0) alignment = alignment_high;
  if (!std::has_single_bit(alignment) || alignment > alignment_high) {
    return buffered(fmt::format("direct I/O wants an alignment of {}", alignment));
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) {
    return buffered(fmt::format("O_DIRECT: {}", std::generic_category().message(errno)));
  }
  if (const int number = try_direct_read(fd); number != 0) {
    if (::fcntl(fd, F_SETFL, flags) == 0) {
      return buffered(fmt::format("direct read: {}", std::generic_category().message(number)));
    }
  }
  mode.alignment = std::max(alignment, alignment_low);
  mode.direct = true;
  return mode;
}

}  // namespace kvd
