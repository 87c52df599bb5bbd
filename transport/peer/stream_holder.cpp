#include "transport/peer/stream_holder.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "core/log.hpp"
#include "transport/peer/pool_lookup.hpp"

namespace kvd {

namespace {

constexpr std::size_t guests_max = 4096;
constexpr std::chrono::seconds greeting_time_max{5};
constexpr std::uint64_t send_bytes = 1 << 20;  // one sendmsg
constexpr int sends_a_turn = 16;
// A run of at least so many bytes is sent as pages; below, a system call a run costs more than the
// copy.
constexpr std::uint64_t pages_bytes_min = 32 << 10;
constexpr std::size_t send_iov_max = 512;
// Requests read ahead of the one that is answered: two whole frames.
constexpr std::size_t input_bytes_max = 2 * stream_wire::request_frame_max;

}  // namespace

class stream_holder::guest final : public loop_source {
public:
  guest(const terms& of, owned_fd fd) : terms_(of), fd_(std::move(fd)), since_(of.time.now()) {
    input_.resize(input_bytes_max);
    tune_stream(fd_.get());
    if (!terms_.loop.watch(fd_.get(), EPOLLIN, *this)) close();
  }
  ~guest() override { close(); }

  bool closed() const noexcept { return !fd_; }
  bool greeted() const noexcept { return greeted_; }
  time_point since() const noexcept { return since_; }
  void close() noexcept {
    if (!fd_) return;
    terms_.loop.forget(fd_.get(), *this);
    fd_.reset();
  }

  void on_ready(std::uint32_t events) noexcept override {
    if ((events & (EPOLLHUP | EPOLLERR)) != 0 || !converse()) close();
  }

private:
  // False: the connection is over.
  bool converse() noexcept {
    for (int turn = 0; turn < sends_a_turn; ++turn) {
      if (answering_) {
        const int sent = send_some();
        if (sent < 0) return false;
        if (sent == 0) return want(EPOLLOUT);
        continue;
      }
      const int got = take_next();
      if (got < 0) return false;
      if (got == 0) {
        const int received = receive();
        if (received < 0) return false;
        if (received == 0) return want(EPOLLIN);
      }
    }
    // Others' turn. What was read ahead may hold whole requests: no EPOLLIN comes for those.
    return want(answering_ || filled_ > 0 ? EPOLLOUT : EPOLLIN);
  }

  bool want(std::uint32_t events) noexcept {
    if (wanted_ != events) terms_.loop.change(fd_.get(), events, *this);
    wanted_ = events;
    return true;
  }

  // 1: something came; 0: nothing yet; -1: the end.
  int receive() noexcept {
    const auto got =
        ::recv(fd_.get(), input_.data() + filled_, input_.size() - filled_, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    filled_ += static_cast<std::size_t>(got);
    return got == 0 ? -1 : 1;
  }

  void consume(std::size_t bytes) noexcept {
    std::memmove(input_.data(), input_.data() + bytes, filled_ - bytes);
    filled_ -= bytes;
  }

  // Begins an answer. 1: done; 0: needs more input; -1: malformed.
  int take_next() noexcept {
    const std::string_view in(input_.data(), filled_);
    return greeted_ ? take_request(in) : take_greeting(in);
  }

  int take_greeting(std::string_view in) noexcept {
    if (in.size() < stream_wire::greeting_bytes) return 0;
    const auto how = stream_wire::check_greeting(in, terms_.key, terms_.boot_id);
    std::string text;
    stream_wire::put_greeting_answer(text, how);
    std::copy(text.begin(), text.end(), head_.begin());
    consume(stream_wire::greeting_bytes);
    if (how != stream_wire::status::ok) terms_.metrics.served_refusals.add();
    if (how == stream_wire::status::malformed) return -1;
    greeted_ = how == stream_wire::status::ok;
    ends_after_ = !greeted_;
    begin_answer(text.size(), 0);
    return 1;
  }

  int take_request(std::string_view in) noexcept {
    stream_wire::request request;
    switch (stream_wire::take_request(in, request, runs_)) {
    case stream_wire::decoded::more: return 0;
    case stream_wire::decoded::malformed: terms_.metrics.served_refusals.add(); return -1;
    case stream_wire::decoded::whole: break;
    }
    consume(request.frame);
    stream_wire::answer answer{stream_wire::status::ok, request.id, request.bytes};
    for (const auto& run : runs_) {
      if (region_of(terms_.regions, run.offset, run.bytes) == nullptr) {
        answer.how = stream_wire::status::refused;
        answer.bytes = 0;
      }
    }
    (answer.bytes == 0 ? terms_.metrics.served_refusals : terms_.metrics.served_requests).add();
    const auto head = stream_wire::make_answer(answer);
    std::copy(head.begin(), head.end(), head_.begin());
    begin_answer(head.size(), answer.bytes);
    return 1;
  }

  void begin_answer(std::size_t head, std::uint64_t payload) noexcept {
    answering_ = true;
    head_bytes_ = head;
    head_sent_ = 0;
    payload_left_ = payload;
    run_ = 0;
    run_sent_ = 0;
  }

  std::size_t build_iov() noexcept {
    std::size_t count = 0;
    if (head_sent_ < head_bytes_) {
      iov_[count++] = {head_.data() + head_sent_, head_bytes_ - head_sent_};
    }
    auto left = std::min(payload_left_, send_bytes);
    auto skip = run_sent_;
    for (auto at = run_; left > 0 && count < send_iov_max; ++at) {
      const auto& run = runs_[at];
      const auto* const region = region_of(terms_.regions, run.offset, run.bytes);
      if (region->memfd >= 0 && run.bytes - skip >= pages_bytes_min) break;  // send_pages()
      const auto here = std::min<std::uint64_t>(run.bytes - skip, left);
      iov_[count++] = {region->base + (run.offset - region->pool_offset) + skip, here};
      left -= here;
      skip = 0;
    }
    return count;
  }

  // The pages of the pool themselves go into the connection's queue: nothing is copied here.
  ssize_t send_pages() noexcept {
    const auto& run = runs_[run_];
    const auto* const region = region_of(terms_.regions, run.offset, run.bytes);
    auto from =
        static_cast<off_t>(region->file_offset + run.offset - region->pool_offset + run_sent_);
    return ::sendfile(fd_.get(), region->memfd, &from,
                      std::min<std::uint64_t>(run.bytes - run_sent_, send_bytes));
  }

  bool has_pages() const noexcept {
    if (head_sent_ < head_bytes_ || payload_left_ == 0) return false;
    const auto& run = runs_[run_];
    return run.bytes - run_sent_ >= pages_bytes_min &&
           region_of(terms_.regions, run.offset, run.bytes)->memfd >= 0;
  }

  ssize_t send_copied() noexcept {
    msghdr message{};
    message.msg_iov = iov_.data();
    message.msg_iovlen = build_iov();
    const int more = head_sent_ < head_bytes_ && payload_left_ > 0 ? MSG_MORE : 0;
    return ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | more);
  }

  // 1: sent something; 0: the kernel is full; -1: the end.
  int send_some() noexcept {
    const auto got = has_pages() ? send_pages() : send_copied();
    if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (got == 0) return -1;
    auto left = static_cast<std::uint64_t>(got);
    const auto head = std::min<std::uint64_t>(left, head_bytes_ - head_sent_);
    head_sent_ += head;
    left -= head;
    payload_left_ -= left;
    terms_.metrics.served_bytes.add(left);
    while (left > 0) {
      const auto here = std::min(left, runs_[run_].bytes - run_sent_);
      run_sent_ += here;
      left -= here;
      if (run_sent_ == runs_[run_].bytes) {
        ++run_;
        run_sent_ = 0;
      }
    }
    if (head_sent_ < head_bytes_ || payload_left_ > 0) return 1;
    answering_ = false;
    return ends_after_ ? -1 : 1;
  }

  const terms& terms_;
  owned_fd fd_;
  time_point since_;
  bool greeted_ = false;
  bool answering_ = false;
  bool ends_after_ = false;
  std::uint32_t wanted_ = EPOLLIN;
  std::vector<char> input_;
  std::size_t filled_ = 0;
  std::vector<stream_wire::run> runs_;  // of the request being answered
  std::array<char, stream_wire::answer_bytes> head_{};
  std::size_t head_bytes_ = 0;
  std::size_t head_sent_ = 0;
  std::uint64_t payload_left_ = 0;
  std::size_t run_ = 0;
  std::uint64_t run_sent_ = 0;
  std::array<iovec, send_iov_max> iov_{};
};

stream_holder::stream_holder(terms of) : terms_(std::move(of)) {}

stream_holder::~stream_holder() {
  if (fd_) terms_.loop.forget(fd_.get(), *this);
}

result<void> stream_holder::listen(const std::string& host, std::uint16_t port) {
  auto where = resolve(host, port);
  if (!where) return tl::unexpected(std::move(where.error()));
  auto& at = where->front();
  const auto refused = [&](std::string_view call) {
    return fail(errc::io, fmt::format("the port for peers, {}: {}: {}", at.to_string(), call,
                                      std::strerror(errno)));
  };
  fd_ = stream_socket(at.family());
  if (!fd_) return refused("socket");
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd_.get(), at.get(), at.bytes) != 0) return refused("bind");
  if (::listen(fd_.get(), 1024) != 0) return refused("listen");
  at.bytes = sizeof at.storage;
  ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at.storage), &at.bytes);
  port_ = at.port();
  if (!terms_.loop.watch(fd_.get(), EPOLLIN, *this)) return refused("epoll");
  return {};
}

void stream_holder::on_ready(std::uint32_t) noexcept {
  for (;;) {
    owned_fd next(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!next) return;
    if (asked_by_.size() >= guests_max) {
      if (!full_logged_) log::warn("peer", "{} peers are connected, no more fit", guests_max);
      full_logged_ = true;
      continue;
    }
    asked_by_.push_back(std::make_unique<guest>(terms_, std::move(next)));
  }
}

time_point stream_holder::tick(time_point now) noexcept {
  auto next = time_point::max();
  for (auto& each : asked_by_) {
    if (each->greeted() || each->closed()) continue;
    const auto until = each->since() + greeting_time_max;
    if (now >= until) each->close();
    next = std::min(next, until);
  }
  std::erase_if(asked_by_, [](const auto& each) { return each->closed(); });
  return next;
}

}  // namespace kvd
