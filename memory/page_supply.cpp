// page_supply over mmap, mlock2 and madvise.

#include <cerrno>
#include <cstdint>
#include <system_error>

#include <fmt/format.h>
#include <linux/mman.h>
#include <sys/mman.h>

#include "memory/arena.hpp"

namespace kvd {

namespace {

constexpr std::size_t page_bytes = 4096;

error refused(std::string_view call, std::size_t bytes, int number, std::string_view hint) {
  return {errc::io, fmt::format("{} of {} for the pool: {}{}", call, in_words(bytes),
                                std::generic_category().message(number), hint)};
}

// For kernels before 5.14, which do not know MADV_POPULATE_WRITE.
void write_to_each_page(std::byte* at, std::size_t bytes) noexcept {
  for (std::size_t offset = 0; offset < bytes; offset += page_bytes) {
    *const_cast<volatile std::byte*>(at + offset) = std::byte{0};
  }
}

class mmap_supply final : public page_supply {
public:
  result<std::byte*> map(std::size_t bytes, bool huge) override {
    return huge ? map_huge(bytes) : map_plain(bytes);
  }

  void unmap(std::byte* at, std::size_t bytes) noexcept override { ::munmap(at, bytes); }

  // On fault: the pages come from the touch threads, in parallel, not from this call.
  result<void> lock(std::byte* at, std::size_t bytes) override {
    if (::mlock2(at, bytes, MLOCK_ONFAULT) == 0) return {};
    return tl::unexpected(refused("mlock2", bytes, errno,
                                  "; check `ulimit -l` and LimitMEMLOCK, pinning is mandatory"));
  }

  // Unlike a plain write it returns an error where the kernel has no page, instead of a SIGBUS.
  result<void> populate(std::byte* at, std::size_t bytes) override {
    for (;;) {
      if (::madvise(at, bytes, MADV_POPULATE_WRITE) == 0) return {};
      if (errno == EINVAL) {
        write_to_each_page(at, bytes);
        return {};
      }
      if (errno != EINTR && errno != EAGAIN) {
        return tl::unexpected(refused("touching", bytes, errno,
                                      "; memory or its cgroup (hugetlb with --use-hugepages) ran "
                                      "out while the pool was claimed"));
      }
    }
  }

private:
  static result<std::byte*> map_huge(std::size_t bytes) {
    // Without MAP_NORESERVE: the kernel sets the pages aside now or says no.
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
    if (at == MAP_FAILED) {
      return tl::unexpected(refused("mmap with huge pages", bytes, errno,
                                    "; reserve them with `sysctl vm.nr_hugepages`"));
    }
    ::madvise(at, bytes, MADV_DONTDUMP);
    return static_cast<std::byte*>(at);
  }

  // Maps a huge page too much and cuts the ends off, so that transparent huge pages fit.
  static result<std::byte*> map_plain(std::size_t bytes) {
    const auto padded = bytes + huge_page_bytes;
    void* const at =
        ::mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return tl::unexpected(refused("mmap", bytes, errno, ""));
    auto* const whole = static_cast<std::byte*>(at);
    const auto over = reinterpret_cast<std::uintptr_t>(at) % huge_page_bytes;
    const auto front = over == 0 ? 0 : huge_page_bytes - over;
    if (front != 0) ::munmap(whole, front);
    ::munmap(whole + front + bytes, huge_page_bytes - front);
    // Advice, not conditions: without it the pool works, with smaller pages or bigger core files.
    ::madvise(whole + front, bytes, MADV_HUGEPAGE);
    ::madvise(whole + front, bytes, MADV_DONTDUMP);
    return whole + front;
  }
};

}  // namespace

std::unique_ptr<page_supply> system_page_supply() {
  return std::make_unique<mmap_supply>();
}

}  // namespace kvd
