#include "transport/peer/mapped_link.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "transport/peer/mapped_holder.hpp"
#include "transport/peer/wire_bytes.hpp"

namespace kvd {

namespace {

// Enough for every copy thread to have the next one at hand.
constexpr std::size_t copies_max = 16;

std::vector<owned_fd> take_files(msghdr& message) {
  std::vector<owned_fd> files;
  for (auto* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const auto count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof fd);
      files.emplace_back(fd);
    }
  }
  return files;
}

}  // namespace

mapped_link::mapped_link(event_loop& loop, link_events& events, host_device& copies,
                         const peer_address& address)
    : loop_(loop), events_(events), copies_(copies), address_(address) {
  over_.reserve(copies_max);
  taken_.reserve(copies_max);
}

mapped_link::~mapped_link() {
  assert(running_ == 0);
  if (fd_) loop_.forget(fd_.get(), *this);
}

void mapped_link::connect(time_point deadline) noexcept {
  deadline_ = deadline;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const auto& path = address_.mapped->path;
  if (path.size() >= sizeof to.sun_path) return lose("the path of the socket is too long");
  std::copy(path.begin(), path.end(), to.sun_path);
  fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  std::string greeting;
  stream_wire::put_greeting(greeting, address_.key, address_.boot_id);
  if (!fd_ || ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      ::send(fd_.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(greeting.size()) ||
      !loop_.watch(fd_.get(), EPOLLIN, *this)) {
    lose(fmt::format("{}: {}", path, std::strerror(errno)));
  }
}

void mapped_link::lose(std::string why) noexcept {
  if (lost_) return;
  lost_ = true;
  why_ = std::move(why);
  if (fd_) {
    loop_.forget(fd_.get(), *this);
    fd_.reset();
  }
  // tick() says so, once no copy runs.
  loop_.wake();
}

void mapped_link::on_ready(std::uint32_t) noexcept {
  try {
    if (up_ || !receive_pool()) lose("the holder ended");
  } catch (const std::exception& failed) {
    lose(failed.what());
  }
}

// False: the connection ended.
bool mapped_link::receive_pool() {
  std::array<char, stream_wire::greeting_answer_bytes + 4 + 8 * mapped_regions_max> text{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(mapped_regions_max * sizeof(int))> control{};
  iovec piece{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  const auto files = take_files(message);
  const std::string_view in(text.data(), static_cast<std::size_t>(got));
  const auto how = in.size() < stream_wire::greeting_answer_bytes
                       ? std::nullopt
                       : stream_wire::take_greeting_answer(in);
  if (how != stream_wire::status::ok) {
    refused_ = how.has_value();
    lose("the holder does not know this address: it is another run");
    return true;
  }
  wire_reader reader(in.substr(stream_wire::greeting_answer_bytes));
  const auto count = reader.number<std::uint32_t>();
  if (count != files.size() || count != address_.regions.size()) {
    lose("the holder handed over something else than its pool");
    return true;
  }
  auto mapping = std::make_unique<pool_mapping>();
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto added = mapping->add(address_.regions[i], files[i], reader.number<std::uint64_t>());
    if (!added || !reader.ok()) {
      lose(added ? "the holder's answer is cut short" : added.error().detail);
      return true;
    }
  }
  pool_ = std::move(mapping);
  return true;
}

bool mapped_link::ready() const noexcept {
  return up_ && !lost_ && running_ + bad_.size() < copies_max;
}

void mapped_link::submit(peer_transfer& transfer) noexcept {
  if (spare_.empty()) {
    made_.push_back(std::make_unique<copy>());
    spare_.push_back(made_.back().get());
  }
  auto& next = *spare_.back();
  next.link = this;
  next.transfer = &transfer;
  next.abandoned.store(false, std::memory_order_relaxed);
  next.job.direction = copy_direction::load;
  next.job.ranges.clear();
  next.job.owner = &next;
  next.job.should_stop = [](void* owner) noexcept {
    return static_cast<copy*>(owner)->abandoned.load(std::memory_order_relaxed);
  };
  next.job.on_done = copied;
  bool inside = true;
  for (const auto& fragment : transfer.fragments) {
    const auto* const from = pool_->at(fragment.offset, fragment.bytes);
    inside = inside && from != nullptr;
    if (inside) next.job.ranges.push_back({fragment.to, from, fragment.bytes});
  }
  transfer.link_state = &next;
  // A device that is full has as many jobs as there are links; it cannot be.
  if (!inside || !copies_.submit(next.job)) {
    transfer.link_state = nullptr;
    bad_.push_back(&transfer);
    loop_.wake();
    return;
  }
  spare_.pop_back();
  ++running_;
}

void mapped_link::copied(copy_job& job, copy_outcome outcome) noexcept {
  auto& ended = *static_cast<copy*>(job.owner);
  auto& link = *ended.link;
  ended.outcome = outcome;
  // Under the lock to the end: the link may go as soon as its thread has seen the last copy.
  const std::lock_guard lock(link.mutex_);
  link.over_.push_back(&ended);
  link.loop_.wake();
}

bool mapped_link::abandon(peer_transfer& transfer, time_point) noexcept {
  if (transfer.link_state == nullptr) {
    std::erase(bad_, &transfer);
    return true;
  }
  static_cast<copy*>(transfer.link_state)->abandoned.store(true, std::memory_order_relaxed);
  return false;
}

time_point mapped_link::tick(time_point now) noexcept {
  if (down_) return time_point::max();
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(over_);
  }
  for (auto* const ended : taken_) {
    --running_;
    spare_.push_back(ended);
    auto& transfer = *ended->transfer;
    const bool whole = ended->outcome == copy_outcome::done;
    for (auto& fragment : transfer.fragments)
      fragment.done = whole;
    events_.transfer_over(transfer, whole ? transfer_end::done : transfer_end::lost);
  }
  taken_.clear();
  while (!bad_.empty()) {
    auto* const transfer = bad_.back();
    bad_.pop_back();
    events_.transfer_over(*transfer, transfer_end::refused);
  }
  if (pool_ != nullptr && !up_ && !lost_) {
    up_ = true;
    events_.link_up();
  }
  if (!up_ && !lost_ && now >= deadline_) lose("the holder does not answer");
  if (lost_ && running_ == 0) {
    down_ = true;
    pool_.reset();
    const auto never = refused_ ? peer_outcome::refused : peer_outcome::unreachable;
    events_.link_down(up_ ? peer_outcome::link_lost : never, why_);
    return time_point::max();
  }
  return up_ || lost_ ? time_point::max() : deadline_;
}

void mapped_link::close() noexcept {
  lose("closed");
  for (auto& each : made_)
    each->abandoned.store(true, std::memory_order_relaxed);
}

}  // namespace kvd
