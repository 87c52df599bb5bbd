#pragma once
// A file over preadv and pwritev, by a few threads `kvd-ssd-io-N`: for where io_uring is forbidden.
//
// Requests are taken in the order they were submitted, each by one thread from end to end. Owner:
// as block_file says. The threads end with the file; none can end before.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "storage/block_file.hpp"
#include "storage/file_handle.hpp"

namespace kvd {

class thread_file final : public block_file {
public:
  static constexpr unsigned threads_max = 256;

  // Takes `file` when it succeeds. io: no thread could be started. REQUIRES: 1 <= threads <= max.
  static result<std::unique_ptr<thread_file>> create(raw_file& file, unsigned threads);
  ~thread_file() override;
  thread_file(const thread_file&) = delete;
  thread_file& operator=(const thread_file&) = delete;

  void submit(file_io& io) noexcept override;
  std::size_t poll(std::chrono::milliseconds wait) noexcept override;
  void wake() noexcept override;

  std::uint64_t bytes() const noexcept override { return file_.bytes; }
  std::uint32_t alignment() const noexcept override { return file_.alignment; }
  std::string_view backend() const noexcept override {
    return file_.direct ? "threads" : "threads, buffered";
  }

private:
  struct io_list {
    file_io* head = nullptr;
    file_io* tail = nullptr;
    void push(file_io& io) noexcept;
    file_io* pop() noexcept;
  };

  thread_file() = default;
  void work(unsigned number) noexcept;
  int carry_out(const file_io& io) const noexcept;
  std::size_t finish_done() noexcept;

  raw_file file_;
  wake_event event_;  // something is done, or somebody called wake()
  std::size_t busy_ = 0;
  std::mutex mutex_;  // guards the rest
  std::condition_variable work_there_;
  io_list queue_;
  io_list done_;
  bool woken_ = false;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvd
