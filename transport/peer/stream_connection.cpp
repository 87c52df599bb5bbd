#include "transport/peer/stream_connection.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <sys/uio.h>

namespace kvd {

namespace {

// One recvmsg; what arrived meanwhile waits in the kernel. Others' turn comes after a few.
constexpr std::uint64_t receive_bytes = 1 << 20;
constexpr int receives_a_turn = 4;
constexpr std::size_t scratch_bytes = 256 << 10;

std::byte* scratch() {
  static thread_local std::vector<std::byte> bytes(scratch_bytes);
  return bytes.data();
}

std::string text_of(int error) {
  return std::strerror(error);
}

}  // namespace

stream_connection::stream_connection(event_loop& loop, link_events& events, const clock& time)
    : loop_(loop), events_(events), time_(time) {}

stream_connection::~stream_connection() {
  assert(pending_.empty());
  if (fd_) loop_.forget(fd_.get(), *this);
}

bool stream_connection::connect(const socket_address& to, const socket_address* from,
                                const greeting& say) noexcept {
  fd_ = stream_socket(to.family());
  if (!fd_) {
    why_ = fmt::format("{}: {}", to.to_string(), text_of(errno));
    return false;
  }
  // A local address of the wrong family would only make connect fail.
  if (from != nullptr && from->family() == to.family()) {
    ::bind(fd_.get(), from->get(), from->bytes);
  }
  last_byte_ = time_.now();
  out_.clear();
  stream_wire::put_greeting(out_, say.key, say.boot_id);
  const int done = ::connect(fd_.get(), to.get(), to.bytes);
  if ((done != 0 && errno != EINPROGRESS) || !loop_.watch(fd_.get(), EPOLLIN | EPOLLOUT, *this)) {
    why_ = fmt::format("{}: {}", to.to_string(), text_of(errno));
    fd_.reset();
    return false;
  }
  why_ = fmt::format("{}: no answer", to.to_string());
  writing_ = true;
  state_ = state::connecting;
  return true;
}

void stream_connection::submit(peer_transfer& transfer) noexcept {
  assert(state_ == state::up);
  const auto id = next_id_++;
  stream_wire::put_request_head(out_, id, transfer.fragments.size());
  for (auto& fragment : transfer.fragments) {
    fragment.done = false;
    stream_wire::put_run(out_, {fragment.offset, static_cast<std::uint32_t>(fragment.bytes)});
  }
  if (pending_.empty()) last_byte_ = time_.now();
  pending_.push_back({&transfer, transfer.bytes, id});
  outstanding_ += transfer.bytes;
  transfer.link_state = this;
  if (!writing_ && !send_more()) broken_ = true;
}

void stream_connection::abandon(peer_transfer& transfer) noexcept {
  for (auto& entry : pending_) {
    if (entry.transfer == &transfer) entry.transfer = nullptr;
  }
}

void stream_connection::fail(transfer_end end, std::string why) noexcept {
  if (fd_) {
    loop_.forget(fd_.get(), *this);
    fd_.reset();
  }
  state_ = state::down;
  why_ = std::move(why);
  outstanding_ = 0;
  // Later ones have not begun, so that another connection can take them.
  while (!pending_.empty()) {
    auto* const transfer = pending_.front().transfer;
    pending_.pop_front();
    if (transfer != nullptr) events_.transfer_over(*transfer, end);
  }
}

void stream_connection::want_write(bool on) noexcept {
  if (on == writing_) return;
  writing_ = on;
  loop_.change(fd_.get(), on ? EPOLLIN | EPOLLOUT : EPOLLIN, *this);
}

bool stream_connection::send_more() noexcept {
  while (sent_ < out_.size()) {
    const auto got =
        ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      want_write(true);
      return true;
    }
    if (got < 0) return false;
    sent_ += static_cast<std::size_t>(got);
  }
  out_.clear();
  sent_ = 0;
  want_write(false);
  return true;
}

void stream_connection::on_ready(std::uint32_t) noexcept {
  const auto lost = [this](int error) {
    const bool was_up = state_ == state::up;
    auto why = was_up ? fmt::format("the connection ended: {}", text_of(error))
                      : fmt::format("{} ({})", why_, text_of(error));
    fail(transfer_end::lost, std::move(why));
  };
  if (state_ == state::connecting) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return lost(error);
    state_ = state::greeting;
  }
  if (writing_ && !send_more()) return lost(errno);
  for (int turn = 0; turn < receives_a_turn; ++turn) {
    errno = 0;
    if (receive_some()) continue;
    if (state_ == state::down) return;  // fail() was called
    if (errno == EAGAIN) return;
    return lost(errno == 0 ? ECONNRESET : errno);
  }
}

// The payload of the front, then the next answer's head: never two payloads, since an answer may
// turn out to be a refusal.
std::size_t stream_connection::build_iov() noexcept {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  if (payload_left_ > 0) {
    const auto* transfer = pending_.front().transfer;
    if (transfer == nullptr) {
      iov_[0] = {scratch(), std::min<std::uint64_t>(payload_left_, scratch_bytes)};
      if (iov_[0].iov_len < payload_left_) return 1;
      count = 1;
    } else {
      auto skip = fragment_got_;
      auto at = fragment_;
      const auto& fragments = transfer->fragments;
      for (; at < fragments.size() && count < iov_max - 1 && bytes < receive_bytes; ++at) {
        const auto here = std::min(fragments[at].bytes - skip, receive_bytes - bytes);
        iov_[count++] = {fragments[at].to + skip, here};
        bytes += here;
        skip = 0;
      }
      if (bytes < payload_left_) return count;
    }
  }
  iov_[count++] = {head_.data() + head_got_, head_.size() - head_got_};
  return count;
}

bool stream_connection::receive_some() noexcept {
  if (state_ == state::greeting) return take_greeting();
  msghdr message{};
  message.msg_iov = iov_.data();
  message.msg_iovlen = build_iov();
  const auto got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  if (got <= 0) {
    if (got < 0 && errno == EINTR) errno = EAGAIN;
    if (got == 0) errno = 0;
    return false;
  }
  last_byte_ = time_.now();
  auto left = static_cast<std::uint64_t>(got);
  if (payload_left_ > 0) {
    const auto payload = std::min(left, payload_left_);
    left -= payload;
    advance(payload);
  }
  head_got_ += left;
  return head_got_ < head_.size() || take_head();
}

bool stream_connection::take_greeting() noexcept {
  const auto want = stream_wire::greeting_answer_bytes;
  const auto got = ::recv(fd_.get(), head_.data() + head_got_, want - head_got_, MSG_DONTWAIT);
  if (got <= 0) {
    if (got == 0) errno = 0;
    return false;
  }
  head_got_ += static_cast<std::size_t>(got);
  if (head_got_ < want) return true;
  head_got_ = 0;
  const auto how = stream_wire::take_greeting_answer({head_.data(), want});
  if (how == stream_wire::status::ok) {
    state_ = state::up;
    return true;
  }
  refused_ = how.has_value();
  fail(transfer_end::lost,
       how ? "the holder does not know this address: it is another run" : "what answers is no kvd");
  return false;
}

// Counts received bytes of the front's payload.
void stream_connection::advance(std::uint64_t bytes) noexcept {
  payload_left_ -= bytes;
  outstanding_ -= bytes;
  auto* const transfer = pending_.front().transfer;
  if (transfer != nullptr) {
    while (bytes > 0) {
      auto& fragment = transfer->fragments[fragment_];
      const auto here = std::min(bytes, fragment.bytes - fragment_got_);
      fragment_got_ += here;
      bytes -= here;
      if (fragment_got_ == fragment.bytes) {
        fragment.done = true;
        ++fragment_;
        fragment_got_ = 0;
      }
    }
  }
  if (payload_left_ == 0) finish_front(transfer_end::done);
}

void stream_connection::finish_front(transfer_end end) noexcept {
  auto* const transfer = pending_.front().transfer;
  pending_.pop_front();
  if (transfer != nullptr) events_.transfer_over(*transfer, end);
}

bool stream_connection::take_head() noexcept {
  head_got_ = 0;
  const auto answer = stream_wire::take_answer({head_.data(), head_.size()});
  const bool expected =
      answer && !pending_.empty() && answer->id == pending_.front().id &&
      answer->bytes ==
          (answer->how == stream_wire::status::ok ? pending_.front().bytes : std::uint64_t{0});
  if (!expected) {
    fail(transfer_end::lost, "the holder sent something else than answers");
    return false;
  }
  fragment_ = 0;
  fragment_got_ = 0;
  if (answer->how == stream_wire::status::ok) {
    payload_left_ = answer->bytes;
  } else {
    outstanding_ -= pending_.front().bytes;
    finish_front(transfer_end::refused);
  }
  return true;
}

}  // namespace kvd
