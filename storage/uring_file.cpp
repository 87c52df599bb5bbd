#include "storage/uring_file.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kvd {

namespace {

// Completions that are of no request; slots count from 0.
constexpr std::uint64_t wake_tag = std::uint64_t{1} << 32;
constexpr std::uint64_t nop_tag = wake_tag + 1;
// A caller that answers each refusal with the same request again must not keep poll() forever.
constexpr std::size_t refusals_max = 4096;
constexpr std::uint64_t registered_bytes_max = 0x40000000;  // of one buffer, 1 GiB
constexpr auto retry_pause = std::chrono::milliseconds(1);

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

}  // namespace

result<std::unique_ptr<uring_file>> uring_file::create(raw_file& file, const options& how) {
  assert(how.depth >= 1 && how.depth <= depth_max);
  std::unique_ptr<uring_file> made(new uring_file);
  if (!made->event_.open()) return fail(errc::io, fmt::format("eventfd: {}", errno_text(errno)));
  made->depth_ = how.depth;
  made->regions_.assign(how.regions.begin(), how.regions.end());
  made->file_.bytes = file.bytes;
  made->file_.alignment = file.alignment;
  made->file_.direct = file.direct;
  made->file_.handle = std::move(file.handle);
  if (const int error = made->start_ring(true); error != 0) {
    file.handle = std::move(made->file_.handle);
    return fail(errc::io, fmt::format("io_uring_setup: {}", errno_text(error)));
  }
  made->slots_.resize(how.depth);
  made->free_.reserve(how.depth);
  made->ready_.reserve(how.depth);
  for (std::uint32_t i = how.depth; i > 0; --i)
    made->free_.push_back(i - 1);
  return made;
}

// Disabled until the first poll(): the thread that enables a single-issuer ring is its issuer, and
// that is rarely the one that opens the file. Registration works before.
int uring_file::start_ring(bool with_regions) noexcept {
  single_issuer_ = true;
  const unsigned entries = depth_ + 1;  // and one for the wake
  int error = io_uring_queue_init(entries, &ring_,
                                  IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                      IORING_SETUP_R_DISABLED);
  if (error == -EINVAL) {
    single_issuer_ = false;
    error = io_uring_queue_init(entries, &ring_, 0);
  }
  if (error != 0) return -error;
  started_ = true;
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) return ENOSYS;  // waits need a timeout
  owner_ = 0;
  wake_armed_ = false;
  const int fd = file_.handle.fd();
  fixed_file_ = io_uring_register_files(&ring_, &fd, 1) == 0;
  if (with_regions) register_regions();
  return 0;
}

void uring_file::register_regions() noexcept {
  buffers_.clear();
  refused_.clear();
  for (const auto region : regions_) {
    for (std::size_t at = 0; at < region.size(); at += registered_bytes_max) {
      const auto bytes = std::min<std::size_t>(region.size() - at, registered_bytes_max);
      buffers_.push_back({region.data() + at, bytes});
    }
  }
  if (buffers_.empty()) return;
  std::sort(buffers_.begin(), buffers_.end(),
            [](const iovec& a, const iovec& b) { return a.iov_base < b.iov_base; });
  const int error =
      io_uring_register_buffers(&ring_, buffers_.data(), static_cast<unsigned>(buffers_.size()));
  if (error == 0) return;
  refused_ = fmt::format("registering {} buffers: {}{}", buffers_.size(), errno_text(-error),
                         error == -ENOMEM ? " (raise RLIMIT_MEMLOCK)" : "");
  buffers_.clear();
}

uring_file::~uring_file() {
  while (busy_ > 0)
    poll(std::chrono::milliseconds(100));
  if (!started_) return;
  // The ring ends some time after this call; the file should be free when it returns.
  io_uring_unregister_files(&ring_);
  io_uring_queue_exit(&ring_);
}

void uring_file::submit(file_io& io) noexcept {
  io.next = nullptr;
  (queue_tail_ != nullptr ? queue_tail_->next : queue_head_) = &io;
  queue_tail_ = &io;
  ++busy_;
}

std::size_t uring_file::poll(std::chrono::milliseconds wait) noexcept {
  std::size_t done = 0;
  if (single_issuer_ && owner_ != ::gettid()) {
    done = adopt_ring();
    if (!started_) return done;
  }
  for (;;) {
    done += send();
    enter(done > 0 ? std::chrono::milliseconds(0) : wait);
    if (broken_ != 0) done += take_back_unsent(std::exchange(broken_, 0));
    done += reap();
    const bool woken = std::exchange(woken_, false);
    // A completion that only carries its request on is no reason to end the wait.
    if (done > 0 || woken || reaped_ == 0) return done;
  }
}

// Makes this thread the ring's issuer. A ring that had another one is replaced: the kernel keeps
// others out of it for good. REQUIRES: the kernel holds no request of the earlier thread.
std::size_t uring_file::adopt_ring() noexcept {
  std::size_t ended = 0;
  if (owner_ != 0) {
    take_back_unsent(0);
    ended += reap();
    // Completions that were deferred to a thread that ended come to nobody: better a loud end.
    assert(sent_ <= (wake_armed_ ? 1u : 0u));
    io_uring_queue_exit(&ring_);
    started_ = false;
    owner_ = 0;
  }
  if (!started_) {
    sent_ = 0;
    if (const int error = start_ring(true); error != 0) {
      if (started_) io_uring_queue_exit(&ring_);
      started_ = false;
      single_issuer_ = true;  // the next poll tries again
      return ended + fail_all(error);
    }
  }
  if (single_issuer_) {
    // By number: liburing 2.3 declares io_uring_enable_rings() and does not export it.
    const auto answer =
        ::syscall(SYS_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
    assert(answer == 0);
    static_cast<void>(answer);
    owner_ = ::gettid();
  }
  return ended;
}

// There is no ring to send to.
std::size_t uring_file::fail_all(int error) noexcept {
  std::size_t ended = 0;
  while (!ready_.empty()) {
    const auto number = ready_.back();
    ready_.pop_back();
    ended += finish(number, error);
  }
  // What on_done() submits stays for the next poll().
  for (auto* io = std::exchange(queue_head_, queue_tail_ = nullptr); io != nullptr; ++ended) {
    auto* const next = io->next;
    --busy_;
    io->on_done(*io, error);
    io = next;
  }
  ::poll(nullptr, 0, static_cast<int>(retry_pause.count()));
  return ended;
}

// Hands over what is to be sent, as far as slots reach. Returns how many requests ended here.
std::size_t uring_file::send() noexcept {
  arm_wake();
  while (!ready_.empty()) {
    auto* const sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return 0;
    const auto number = ready_.back();
    ready_.pop_back();
    prepare(number, sqe);
  }
  std::size_t ended = 0;
  while (queue_head_ != nullptr && !free_.empty() && ended < refusals_max) {
    auto& io = *queue_head_;
    const int refused = refusal_of(io, file_.bytes, file_.alignment);
    const piece_cursor cursor = refused == 0 ? piece_cursor(io, file_.alignment) : piece_cursor();
    const bool over = refused != 0 || (io.what != file_io::kind::sync && cursor.finished());
    auto* const sqe = over ? nullptr : io_uring_get_sqe(&ring_);
    if (!over && sqe == nullptr) break;
    queue_head_ = io.next;
    if (queue_head_ == nullptr) queue_tail_ = nullptr;
    if (over) {
      --busy_;
      ++ended;
      io.on_done(io, refused);
      continue;
    }
    const auto number = free_.back();
    free_.pop_back();
    slots_[number].io = &io;
    slots_[number].cursor = cursor;
    prepare(number, sqe);
  }
  return ended;
}

void uring_file::prepare(std::uint32_t number, io_uring_sqe* sqe) noexcept {
  auto& of = slots_[number];
  if (of.io->what == file_io::kind::sync) {
    // Earlier writes have finished, or the caller does not count on them: no draining.
    io_uring_prep_fsync(sqe, fixed_file_ ? 0 : file_.handle.fd(), IORING_FSYNC_DATASYNC);
  } else {
    prepare_transfer(of, sqe);
  }
  if (fixed_file_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data64(sqe, number);
  ++sent_;
}

void uring_file::prepare_transfer(slot& of, io_uring_sqe* sqe) noexcept {
  const int fd = fixed_file_ ? 0 : file_.handle.fd();
  const auto offset = of.cursor.offset();
  const bool read = of.io->what == file_io::kind::read;
  const auto count = static_cast<unsigned>(of.cursor.gather(of.pieces));
  if (count == 1) {
    const auto& piece = of.pieces[0];
    const auto bytes = static_cast<unsigned>(piece.iov_len);
    if (const auto buffer = buffer_of(piece)) {
      if (read) {
        io_uring_prep_read_fixed(sqe, fd, piece.iov_base, bytes, offset, *buffer);
      } else {
        io_uring_prep_write_fixed(sqe, fd, piece.iov_base, bytes, offset, *buffer);
      }
      return;
    }
  }
  if (read) {
    io_uring_prep_readv(sqe, fd, of.pieces.data(), count, offset);
  } else {
    io_uring_prep_writev(sqe, fd, of.pieces.data(), count, offset);
  }
}

std::optional<int> uring_file::buffer_of(const iovec& piece) const noexcept {
  const auto after =
      std::upper_bound(buffers_.begin(), buffers_.end(), piece.iov_base,
                       [](const void* at, const iovec& buffer) { return at < buffer.iov_base; });
  if (after == buffers_.begin()) return {};
  const auto& buffer = *std::prev(after);
  const auto skip =
      static_cast<std::byte*>(piece.iov_base) - static_cast<std::byte*>(buffer.iov_base);
  if (static_cast<std::size_t>(skip) + piece.iov_len > buffer.iov_len) return {};
  return static_cast<int>(std::prev(after) - buffers_.begin());
}

void uring_file::arm_wake() noexcept {
  if (wake_armed_) return;
  auto* const sqe = io_uring_get_sqe(&ring_);
  if (sqe == nullptr) return;
  io_uring_prep_poll_add(sqe, event_.fd(), POLLIN);
  io_uring_sqe_set_data64(sqe, wake_tag);
  wake_armed_ = true;
  ++sent_;
}

// Sends what is prepared and waits for a completion of any kind.
void uring_file::enter(std::chrono::milliseconds wait) noexcept {
  int answer = 0;
  if (wait.count() <= 0) {
    // Deferred completions show up only when the kernel is asked for them.
    answer = io_uring_submit_and_get_events(&ring_);
  } else {
    __kernel_timespec limit{};
    limit.tv_sec = wait.count() / 1000;
    limit.tv_nsec = wait.count() % 1000 * 1000000;
    io_uring_cqe* first = nullptr;
    answer = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr);
  }
  if (answer >= 0 || answer == -ETIME || answer == -EINTR) return;
  // Short of something, the kernel takes the prepared operations later; else it never will.
  if (answer != -EAGAIN && answer != -EBUSY && answer != -ENOMEM) broken_ = -answer;
  ::poll(nullptr, 0, static_cast<int>(retry_pause.count()));
}

std::size_t uring_file::reap() noexcept {
  std::size_t ended = 0;
  reaped_ = 0;
  unsigned head = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(&ring_, head, cqe) {
    ++reaped_;
    const auto tag = cqe->user_data;
    const auto answer = cqe->res;
    --sent_;
    if (tag == wake_tag) {
      wake_armed_ = false;
      woken_ = true;
      event_.clear();
    } else if (tag != nop_tag) {
      const auto number = static_cast<std::uint32_t>(tag);
      if (const auto error = slots_[number].cursor.take(answer)) {
        ended += finish(number, *error);
      } else {
        ready_.push_back(number);
      }
    }
  }
  io_uring_cq_advance(&ring_, static_cast<unsigned>(reaped_));
  return ended;
}

// Turns prepared operations that the kernel has not taken into no-ops. Their requests end with
// `error`, or with 0 are ready to be sent again.
std::size_t uring_file::take_back_unsent(int error) noexcept {
  std::size_t ended = 0;
  const auto mask = *ring_.sq.kring_mask;
  const auto first = ring_.sq.sqe_tail - io_uring_sq_ready(&ring_);
  for (auto at = first; at != ring_.sq.sqe_tail; ++at) {
    auto* const sqe = &ring_.sq.sqes[at & mask];
    const auto tag = sqe->user_data;
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, nop_tag);
    if (error == 0) --sent_;  // this ring will not run again
    if (tag == wake_tag) wake_armed_ = false;
    if (tag >= wake_tag) continue;
    const auto number = static_cast<std::uint32_t>(tag);
    if (error == 0) {
      ready_.push_back(number);
    } else {
      ended += finish(number, error);
    }
  }
  return ended;
}

std::size_t uring_file::finish(std::uint32_t number, int error) noexcept {
  auto& io = *std::exchange(slots_[number].io, nullptr);
  free_.push_back(number);
  --busy_;
  io.on_done(io, error);
  return 1;
}

}  // namespace kvd
