#include "storage/thread_file.hpp"

#include <array>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include "storage/piece_cursor.hpp"

namespace kvd {

void thread_file::io_list::push(file_io& io) noexcept {
  io.next = nullptr;
  (tail != nullptr ? tail->next : head) = &io;
  tail = &io;
}

file_io* thread_file::io_list::pop() noexcept {
  auto* const first = head;
  if (first == nullptr) return nullptr;
  head = first->next;
  if (head == nullptr) tail = nullptr;
  return first;
}

result<std::unique_ptr<thread_file>> thread_file::create(raw_file& file, unsigned threads) {
  assert(threads >= 1 && threads <= threads_max);
  std::unique_ptr<thread_file> made(new thread_file);
  if (!made->event_.open()) return fail(errc::io, "threads for file I/O: no eventfd left");
  made->file_.bytes = file.bytes;
  made->file_.alignment = file.alignment;
  made->file_.direct = file.direct;
  // Signals belong to the threads that ask for them, and new threads inherit the mask.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string refused;
  try {
    for (unsigned i = 0; i < threads; ++i)
      made->threads_.emplace_back([self = made.get(), i] { self->work(i); });
  } catch (const std::exception& thrown) {
    refused = thrown.what();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (made->threads_.empty()) {
    return fail(errc::io, fmt::format("threads for file I/O: {}", refused));
  }
  // Threads touch the handle only with a request, and none was submitted yet.
  made->file_.handle = std::move(file.handle);
  return made;
}

thread_file::~thread_file() {
  while (busy_ > 0)
    poll(std::chrono::milliseconds(100));
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_there_.notify_all();
  for (auto& thread : threads_)
    thread.join();
}

void thread_file::submit(file_io& io) noexcept {
  ++busy_;
  {
    const std::lock_guard lock(mutex_);
    queue_.push(io);
  }
  work_there_.notify_one();
}

std::size_t thread_file::poll(std::chrono::milliseconds wait) noexcept {
  for (;;) {
    if (const auto done = finish_done(); done > 0) return done;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(woken_, false)) return 0;
    }
    if (wait.count() <= 0) return 0;
    pollfd event{event_.fd(), POLLIN, 0};
    if (::poll(&event, 1, static_cast<int>(wait.count())) <= 0) return finish_done();
    // A signal may be left from what was finished without waiting: look, then wait again.
  }
}

void thread_file::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  event_.signal();
}

std::size_t thread_file::finish_done() noexcept {
  event_.clear();  // before the look: what is done after it signals again
  io_list done;
  {
    const std::lock_guard lock(mutex_);
    done = std::exchange(done_, io_list{});
  }
  std::size_t count = 0;
  while (auto* const io = done.pop()) {
    --busy_;
    ++count;
    io->on_done(*io, io->outcome);
  }
  return count;
}

// noexcept: whatever goes wrong in here ends the process, never a thread in silence.
void thread_file::work(unsigned number) noexcept {
  ::pthread_setname_np(::pthread_self(), fmt::format("kvd-ssd-io-{}", number).c_str());
  std::unique_lock lock(mutex_);
  for (;;) {
    while (queue_.head == nullptr && !stopping_)
      work_there_.wait(lock);
    auto* const io = queue_.pop();
    if (io == nullptr) return;
    lock.unlock();
    io->outcome = carry_out(*io);
    lock.lock();
    const bool first = done_.head == nullptr;
    done_.push(*io);
    if (first) event_.signal();
  }
}

int thread_file::carry_out(const file_io& io) const noexcept {
  const int fd = file_.handle.fd();
  if (const int refused = refusal_of(io, file_.bytes, file_.alignment); refused != 0) {
    return refused;
  }
  piece_cursor cursor(io, file_.alignment);
  if (cursor.finished() && io.what != file_io::kind::sync) return 0;
  std::array<iovec, 1024> pieces;
  for (;;) {
    const auto offset = static_cast<off_t>(cursor.offset());
    ssize_t moved = 0;
    if (io.what == file_io::kind::sync) {
      moved = ::fdatasync(fd);
    } else {
      const auto count = static_cast<int>(cursor.gather(pieces));
      moved = io.what == file_io::kind::read ? ::preadv(fd, pieces.data(), count, offset)
                                             : ::pwritev(fd, pieces.data(), count, offset);
    }
    if (const auto error = cursor.take(moved < 0 ? -errno : moved)) return *error;
  }
}

}  // namespace kvd
