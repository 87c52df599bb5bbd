#include "storage/uring_file.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "storage/io_batch.hpp"

namespace kvd {

namespace {

// Completions that are of no request; slots count from 0.
constexpr std::uint64_t wake_tag = std::uint64_t{1} << 32;
constexpr std::uint64_t nop_tag = wake_tag + 1;
// A caller that answers each refusal with the same request again must not keep poll() forever.
constexpr std::size_t refusals_max = 4096;
// An operation more costs somewhat less than looking up the pages of so many bytes; a piece costs
// as much as so many bytes of pages.
constexpr std::uint64_t split_from = 1 << 20;
constexpr std::uint64_t piece_worth = 128 << 10;
// Newer than the headers of the oldest liburing that kvd builds on.
constexpr std::uint8_t op_readv_fixed = 60;
constexpr std::uint8_t op_writev_fixed = 61;
constexpr auto retry_pause = std::chrono::milliseconds(1);

}  // namespace

result<std::unique_ptr<uring_file>> uring_file::create(raw_file& file, const options& how) {
  assert(how.depth >= 1 && how.depth <= depth_max);
  std::unique_ptr<uring_file> made(new uring_file);
  if (!made->event_.open()) return fail(errc::io, fmt::format("eventfd: {}", errno_text(errno)));
  made->depth_ = how.depth;
  made->regions_.assign(how.regions.begin(), how.regions.end());
  made->vectored_ = how.vectored;
  made->file_.bytes = file.bytes;
  made->file_.alignment = file.alignment;
  made->file_.direct = file.direct;
  made->file_.handle = std::move(file.handle);
  if (const int error = made->start_ring(); error != 0) {
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
int uring_file::start_ring() noexcept {
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
  find_vectored();
  buffers_.forget();
  refused_.clear();
  for (const auto region : regions_) {
    const auto added = buffers_.add(ring_, region);
    if (!added) refused_ = added.error().detail;
    if (!added) break;
  }
  counts_.registered_buffers = buffers_.count();
  return 0;
}

void uring_file::find_vectored() noexcept {
  // As large as the kernel's list may get; an older kernel fills in less.
  alignas(io_uring_probe)
      std::byte memory[sizeof(io_uring_probe) + 256 * sizeof(io_uring_probe_op)];
  std::memset(memory, 0, sizeof memory);
  auto* const probe = reinterpret_cast<io_uring_probe*>(memory);
  const bool answered = io_uring_register_probe(&ring_, probe, 256) == 0;
  vectored_ = vectored_ && answered && io_uring_opcode_supported(probe, op_writev_fixed) != 0;
}

result<void> uring_file::use_memory(std::span<std::byte> region) noexcept {
  assert(started_ && (!single_issuer_ || owner_ == 0 || owner_ == ::gettid()));
  auto added = buffers_.add(ring_, region);
  counts_.registered_buffers = buffers_.count();
  if (added) {
    regions_.push_back(region);
  } else {
    refused_ = added.error().detail;
  }
  return added;
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
    if (const int error = start_ring(); error != 0) {
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
  send_ready();
  std::size_t ended = 0;
  while (queue_head_ != nullptr && !free_.empty() && ready_.empty() && ended < refusals_max) {
    auto& io = *queue_head_;
    const int refused = refusal_of(io, file_.bytes, file_.alignment);
    const bool transfers = refused == 0 && io.what != file_io::kind::sync;
    const bool nothing = transfers && piece_cursor(io, file_.alignment).finished();
    const auto runs = transfers && !nothing ? split(io) : 1;
    if (runs > free_.size()) break;
    queue_head_ = io.next;
    if (queue_head_ == nullptr) queue_tail_ = nullptr;
    if (refused != 0 || nothing) {
      --busy_;
      ++ended;
      io.on_done(io, refused);
      continue;
    }
    io.outcome = 0;
    io.operations = static_cast<std::uint32_t>(runs);
    auto offset = io.offset;
    for (std::size_t i = 0; i < runs; ++i) {
      const auto number = free_.back();
      free_.pop_back();
      auto& of = slots_[number];
      of.io = &io;
      of.buffer = transfers ? runs_[i].buffer : std::nullopt;
      of.cursor = transfers ? piece_cursor(io.what, offset, runs_[i].pieces, file_.alignment)
                            : piece_cursor(io, file_.alignment);
      offset += transfers ? runs_[i].bytes : 0;
      ready_.push_back(number);
    }
    // By offset, so that what adjoins on the disk can become one request of the device.
    std::reverse(ready_.begin(), ready_.end());
    send_ready();
  }
  return ended;
}

void uring_file::send_ready() noexcept {
  while (!ready_.empty()) {
    auto* const sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return;
    const auto number = ready_.back();
    ready_.pop_back();
    prepare(number, sqe);
  }
}

bool uring_file::joins(const run& last, const io_piece& piece,
                       std::optional<int> buffer) const noexcept {
  if (last.buffer != buffer) return false;
  const auto& before = last.pieces.back();
  return vectored_ || !buffer || before.at + before.bytes == piece.at;
}

// Cuts a request into the operations that move it, and says how many that are.
std::size_t uring_file::split(const file_io& io) noexcept {
  const run whole{io.pieces, 0, {}};
  std::size_t count = 0;
  std::uint64_t saved = 0;  // bytes whose pages need no look-up
  for (std::size_t i = 0; i < io.pieces.size() && buffers_.count() > 0; ++i) {
    const auto& piece = io.pieces[i];
    if (piece.bytes == 0) continue;  // an operation of nothing would look like the end of the file
    const auto buffer = buffers_.holding(piece.at, piece.bytes);
    if (count == 0 || !joins(runs_[count - 1], piece, buffer)) {
      if (count == runs_max || count == depth_) {
        saved = 0;
        break;
      }
      runs_[count++] = {io.pieces.subspan(i, 0), 0, buffer};
    }
    auto& last = runs_[count - 1];
    last.pieces = {last.pieces.data(), &piece + 1};
    last.bytes += piece.bytes;
    if (buffer) saved += piece.bytes + piece_worth;
  }
  const bool pays = file_.direct && saved >= split_from * (count - 1);
  if (saved > 0 && (count == 1 || pays)) return count;
  runs_[0] = whole;
  return 1;
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
  ++counts_.operations;
  if (of.buffer && count == 1) {
    const auto& piece = of.pieces[0];
    const auto bytes = static_cast<unsigned>(piece.iov_len);
    ++counts_.fixed_operations;
    if (read) {
      io_uring_prep_read_fixed(sqe, fd, piece.iov_base, bytes, offset, *of.buffer);
    } else {
      io_uring_prep_write_fixed(sqe, fd, piece.iov_base, bytes, offset, *of.buffer);
    }
    return;
  }
  if (read) {
    io_uring_prep_readv(sqe, fd, of.pieces.data(), count, offset);
  } else {
    io_uring_prep_writev(sqe, fd, of.pieces.data(), count, offset);
  }
  if (of.buffer && vectored_) {
    ++counts_.fixed_operations;
    sqe->opcode = read ? op_readv_fixed : op_writev_fixed;
    sqe->buf_index = static_cast<std::uint16_t>(*of.buffer);
  }
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
  if (io.outcome == 0) io.outcome = error;
  if (--io.operations > 0) return 0;
  --busy_;
  io.on_done(io, io.outcome);
  return 1;
}

}  // namespace kvd
