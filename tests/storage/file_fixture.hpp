#pragma once
// What the tests of real files share: folders that vanish, aligned pages, requests that count.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "storage/block_file.hpp"

namespace kvd {

constexpr std::size_t page_bytes = 4096;

// Below the build tree, on the disk that the tests run on, or in /dev/shm.
class scratch_folder {
public:
  explicit scratch_folder(bool in_memory = false) {
    const auto base =
        in_memory ? std::filesystem::path("/dev/shm") : std::filesystem::current_path();
    std::string pattern = base / "kvd-storage-XXXXXX";
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  std::string path(const std::string& below) const { return root_ / below; }

private:
  std::filesystem::path root_;
};

class pages {
public:
  explicit pages(std::size_t count)
      : at_(static_cast<std::byte*>(std::aligned_alloc(page_bytes, count * page_bytes))),
        count_(count) {
    std::memset(at_.get(), 0, count * page_bytes);
  }
  std::byte* page(std::size_t i) const { return at_.get() + i * page_bytes; }
  std::span<std::byte> all() const { return {at_.get(), count_ * page_bytes}; }
  // Bytes that only this page of this seed has.
  void fill(std::uint64_t seed) const {
    for (std::size_t i = 0; i < count_; ++i)
      fill_page(i, seed * 1000003 + i);
  }
  void fill_page(std::size_t i, std::uint64_t value) const {
    for (std::size_t word = 0; word < page_bytes / 8; ++word) {
      const auto mixed = (value << 16) + word;
      std::memcpy(page(i) + word * 8, &mixed, 8);
    }
  }
  bool same_page(std::size_t i, const pages& other, std::size_t j) const {
    return std::memcmp(page(i), other.page(j), page_bytes) == 0;
  }

private:
  struct release {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::unique_ptr<std::byte, release> at_;
  std::size_t count_;
};

struct counted_io : file_io {
  std::vector<io_piece> list;
  int calls = 0;
  int error = -1;

  counted_io(kind k, std::uint64_t at, std::vector<io_piece> of = {}) : list(std::move(of)) {
    what = k;
    offset = at;
    on_done = [](file_io& io, int number) noexcept {
      auto& self = static_cast<counted_io&>(io);
      ++self.calls;
      self.error = number;
    };
  }
  void submit_to(block_file& file) {
    pieces = list;
    file.submit(*this);
  }
};

inline void poll_until(block_file& file, std::size_t count) {
  for (std::size_t done = 0; done < count;)
    done += file.poll(std::chrono::milliseconds(1000));
}

inline int run_io(block_file& file, file_io::kind kind, std::uint64_t at,
                  std::vector<io_piece> list = {}) {
  counted_io io(kind, at, std::move(list));
  io.submit_to(file);
  poll_until(file, 1);
  CHECK(io.calls == 1);
  return io.error;
}

}  // namespace kvd
