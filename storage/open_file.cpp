#include "storage/open_file.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/units.hpp"
#include "storage/file_handle.hpp"
#include "storage/file_lock.hpp"
#include "storage/file_space.hpp"
#include "storage/thread_file.hpp"
#include "storage/uring_file.hpp"

namespace kvd {

namespace {

constexpr std::uint64_t file_bytes_unit = 4096;

std::string_view kind_of_file(mode_t mode) noexcept {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISCHR(mode)) return "a character device";
  return "no file";
}

error not_regular(const std::string& path, mode_t mode) {
  return {errc::invalid_argument,
          fmt::format("{} is {}; the tier takes regular files only", path, kind_of_file(mode))};
}

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

struct locked_handle {
  file_handle handle;
  bool created = false;
};

error open_error(const std::string& path, int number) {
  if (number == ENOENT) {
    return {errc::invalid_argument,
            fmt::format("{}: there is no folder {}", path, folder_of(path))};
  }
  if (number == ELOOP) return not_regular(path, S_IFLNK);
  return file_error(path, "open", number);
}

// The file under this path, locked. Between open() and flock() another process may have removed
// and made it anew: then the lock is on a file that nobody finds again, and counts for nothing.
result<locked_handle> open_locked(const std::string& path) {
  constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  for (int attempt = 0; attempt < 16; ++attempt) {
    struct stat there {};
    // Asked first: to open a device or a FIFO can do things.
    const bool exists = ::lstat(path.c_str(), &there) == 0;
    if (exists && !S_ISREG(there.st_mode)) return tl::unexpected(not_regular(path, there.st_mode));
    locked_handle locked;
    locked.created = !exists;
    locked.handle = file_handle(
        ::open(path.c_str(), exists ? flags : flags | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR));
    if (!locked.handle) {
      if (exists ? errno == ENOENT : errno == EEXIST) continue;
      return tl::unexpected(open_error(path, errno));
    }
    struct stat opened {};
    if (::fstat(locked.handle.fd(), &opened) != 0) {
      return tl::unexpected(file_error(path, "fstat", errno));
    }
    if (!S_ISREG(opened.st_mode)) return tl::unexpected(not_regular(path, opened.st_mode));
    if (auto held = lock_file(locked.handle.fd(), path); !held) {
      return tl::unexpected(std::move(held.error()));
    }
    if (::lstat(path.c_str(), &there) == 0 && there.st_ino == opened.st_ino &&
        there.st_dev == opened.st_dev) {
      return locked;
    }
  }
  return fail(errc::unavailable, fmt::format("{} is replaced again and again", path));
}

// Wipes and grows. The file's bytes afterwards.
result<std::uint64_t> give_size(int fd, const std::string& path, const open_options& how) {
  if (how.wipe && ::ftruncate(fd, 0) != 0) {
    return tl::unexpected(file_error(path, "ftruncate", errno));
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0) return tl::unexpected(file_error(path, "fstat", errno));
  const auto has = static_cast<std::uint64_t>(status.st_size);
  if (how.bytes >= has && how.bytes > 0) {
    if (auto grown = grow_file(fd, path, how.bytes, how.free_floor); !grown) {
      return tl::unexpected(std::move(grown.error()));
    }
    return how.bytes;
  }
  if (has < file_bytes_unit) {
    return fail(errc::invalid_argument, fmt::format("{} is empty and no size was given", path));
  }
  return has / file_bytes_unit * file_bytes_unit;
}

// A new file's name is durable once its folder is.
void sync_folder(const std::string& path) noexcept {
  const file_handle folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Not every file system has it, and without it the worst is an empty tier after a power loss.
  if (folder) static_cast<void>(::fsync(folder.fd()));
}

void add_reason(std::string& reasons, std::string_view why) {
  if (why.empty()) return;
  if (!reasons.empty()) reasons += "; ";
  reasons += why;
}

result<void> choose_backend(raw_file raw, const std::string& path, const open_options& how,
                            opened_file& out) {
  if (how.backend != file_backend::threads) {
    auto ring = uring_file::create(raw, {how.depth, how.regions, how.vectored});
    if (ring) {
      out.registered_buffers = (*ring)->counts().registered_buffers;
      add_reason(out.why_not, (*ring)->registration_refused());
      out.file = std::move(*ring);
      return {};
    }
    add_reason(out.why_not, ring.error().detail);
    if (how.backend == file_backend::uring) {
      return fail(ring.error().code, fmt::format("{}: {}", path, ring.error().detail));
    }
  } else {
    add_reason(out.why_not, "threads: asked for");
  }
  auto threads = thread_file::create(raw, how.threads);
  if (!threads) {
    return fail(threads.error().code, fmt::format("{}: {}", path, threads.error().detail));
  }
  out.file = std::move(*threads);
  return {};
}

result<opened_file> open_sized(locked_handle locked, const std::string& path,
                               const open_options& how) {
  const int fd = locked.handle.fd();
  const auto bytes = give_size(fd, path, how);
  if (!bytes) return tl::unexpected(bytes.error());
  if (locked.created) sync_folder(path);
  struct stat status {};
  if (::fstat(fd, &status) != 0) return tl::unexpected(file_error(path, "fstat", errno));
  auto mode = choose_transfer_mode(fd, how.direct);
  opened_file out;
  out.identity = {path, status.st_dev, status.st_ino, *bytes};
  out.created = locked.created;
  out.direct = mode.direct;
  out.why_not = std::move(mode.why_buffered);
  raw_file raw{std::move(locked.handle), *bytes, mode.alignment, mode.direct};
  if (auto chosen = choose_backend(std::move(raw), path, how, out); !chosen) {
    return tl::unexpected(std::move(chosen.error()));
  }
  return out;
}

}  // namespace

result<opened_file> open_block_file(const std::string& path, const open_options& how) {
  assert(how.depth >= 1 && how.depth <= uring_file::depth_max);
  assert(how.threads >= 1 && how.threads <= thread_file::threads_max);
  if (path.empty() || path.find('\0') != std::string::npos) {
    return fail(errc::invalid_argument, fmt::format("{} is no path", in_quotes(path)));
  }
  if (how.bytes % file_bytes_unit != 0) {
    return fail(errc::invalid_argument, fmt::format("{}: {} is no multiple of {}", path,
                                                    format_bytes(how.bytes), file_bytes_unit));
  }
  auto locked = open_locked(path);
  if (!locked) return tl::unexpected(std::move(locked.error()));
  const bool created = locked->created;
  auto opened = open_sized(std::move(*locked), path, how);
  if (!opened && created) ::unlink(path.c_str());
  return opened;
}

result<void> file_health(const file_identity& of) {
  struct stat status {};
  if (::lstat(of.path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) {
      return tl::unexpected(file_error(of.path, "stat", errno));
    }
    return fail(errc::not_found, fmt::format("{} was removed while it was in use", of.path));
  }
  if (status.st_dev != of.device || status.st_ino != of.inode) {
    return fail(errc::not_found, fmt::format("{} was replaced while it was in use", of.path));
  }
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes < of.bytes) {
    return fail(errc::io, fmt::format("{} was cut from {} to {} while it was in use", of.path,
                                      format_bytes(of.bytes), format_bytes(bytes)));
  }
  return {};
}

}  // namespace kvd
