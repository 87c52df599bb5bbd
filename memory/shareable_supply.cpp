// page_supply over memfd: the pool as a file that peers on the same host map.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/log.hpp"
#include "memory/arena.hpp"

namespace kvd {

namespace {

// Since Linux 6.1; glibc 2.36 does not name it.
constexpr int advice_collapse = 25;

error file_refused(std::string_view call, std::size_t bytes, std::string_view hint) {
  return {errc::io, fmt::format("{} of {} for the pool: {}{}", call, in_words(bytes),
                                std::generic_category().message(errno), hint)};
}

class memfd_supply final : public page_supply {
public:
  explicit memfd_supply(std::unique_ptr<page_supply> plain) : plain_(std::move(plain)) {}
  ~memfd_supply() override {
    for (const auto& [at, fd] : files_)
      ::close(fd);
  }

  result<std::byte*> map(std::size_t bytes, bool huge) override {
    const unsigned pages = huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0;
    const int fd = ::memfd_create("kvd-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING | pages);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      auto failed = file_refused("memfd", bytes, "");
      if (fd >= 0) ::close(fd);
      return tl::unexpected(std::move(failed));
    }
    auto mapped = map_file(fd, bytes, huge);
    if (!mapped) {
      ::close(fd);
      return mapped;
    }
    const std::lock_guard lock(mutex_);
    files_[*mapped] = fd;
    return mapped;
  }

  void unmap(std::byte* at, std::size_t bytes) noexcept override {
    ::munmap(at, bytes);
    const std::lock_guard lock(mutex_);
    const auto file = files_.find(at);
    if (file == files_.end()) return;
    ::close(file->second);
    files_.erase(file);
  }

  result<void> lock(std::byte* at, std::size_t bytes) override { return plain_->lock(at, bytes); }

  // The kernel makes huge pages of a memfd only where asked to, by default, and there only from
  // ranges that have a page: touching one of each and collapsing takes what one fault of an
  // anonymous huge page takes (512 MiB: 0.15 s, against 0.93 s of small pages and 1.2 s to collapse
  // those; two cores, Linux 6.18, 2026-12). Populating afterwards is for what could not be had so.
  result<void> populate(std::byte* at, std::size_t bytes) override {
    if (!collapse_refused_.load(std::memory_order_relaxed)) collapse(at, bytes);
    return plain_->populate(at, bytes);
  }

  int file_of(const std::byte* at) const noexcept override {
    const std::lock_guard lock(mutex_);
    const auto file = files_.find(at);
    return file == files_.end() ? -1 : file->second;
  }

private:
  void collapse(std::byte* at, std::size_t bytes) noexcept {
    for (std::size_t done = 0; done + huge_page_bytes <= bytes; done += huge_page_bytes) {
      if (::madvise(at + done, 1, MADV_POPULATE_WRITE) != 0) return;  // populate() says why
    }
    if (::madvise(at, bytes, advice_collapse) == 0 || errno == EAGAIN) return;
    // hugetlb, which needs none of this, and kernels that cannot.
    if (!collapse_refused_.exchange(true) && errno != EINVAL) {
      log::warn("pool", "the pool has small pages: huge ones were refused: {}",
                std::generic_category().message(errno));
    }
  }

  static result<std::byte*> map_file(int fd, std::size_t bytes, bool huge) {
    // Address space first, so that the file can lie at a huge page's start.
    const auto padded = bytes + huge_page_bytes;
    void* const space =
        ::mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) return tl::unexpected(file_refused("mmap", bytes, ""));
    auto* const whole = static_cast<std::byte*>(space);
    const auto over = reinterpret_cast<std::uintptr_t>(space) % huge_page_bytes;
    const auto front = over == 0 ? 0 : huge_page_bytes - over;
    void* const at =
        ::mmap(whole + front, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) {
      auto failed = file_refused(huge ? "mmap with huge pages" : "mmap", bytes,
                                 huge ? "; reserve them with `sysctl vm.nr_hugepages`" : "");
      ::munmap(space, padded);
      return tl::unexpected(std::move(failed));
    }
    if (front != 0) ::munmap(whole, front);
    ::munmap(whole + front + bytes, huge_page_bytes - front);
    ::madvise(at, bytes, MADV_HUGEPAGE);  // where the system's setting is `advise`
    ::madvise(at, bytes, MADV_DONTDUMP);
    if (::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
      auto failed = file_refused("sealing the memfd", bytes, "; it needs Linux 5.1");
      ::munmap(at, bytes);
      return tl::unexpected(std::move(failed));
    }
    return static_cast<std::byte*>(at);
  }

  const std::unique_ptr<page_supply> plain_;
  std::atomic<bool> collapse_refused_{false};
  mutable std::mutex mutex_;
  std::map<const std::byte*, int> files_;  // GUARDED_BY(mutex_)
};

}  // namespace

std::unique_ptr<page_supply> shareable_page_supply() {
  return std::make_unique<memfd_supply>(system_page_supply());
}

}  // namespace kvd
