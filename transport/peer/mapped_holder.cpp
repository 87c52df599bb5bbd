#include "transport/peer/mapped_holder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "transport/peer/stream_wire.hpp"
#include "transport/peer/wire_bytes.hpp"

namespace kvd {

namespace {

constexpr std::size_t mapped_guests_max = 1024;
constexpr std::chrono::seconds mapped_greeting_max{5};

std::vector<std::string> parents_of(const std::string& asked) {
  if (!asked.empty()) return {asked};
  std::vector<std::string> out;
  if (const char* const runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr) {
    out.emplace_back(runtime);
  }
  out.emplace_back("/run");
  out.emplace_back("/tmp");
  return out;
}

}  // namespace

std::string running_host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.size() <= 64 ? id : std::string();
}

bool is_reachable(const peer_address::mapped_section& of) {
  if (of.host_id.empty() || of.host_id != running_host_id()) return false;
  struct stat seen {};
  return ::lstat(of.path.c_str(), &seen) == 0 && S_ISSOCK(seen.st_mode) &&
         seen.st_dev == of.device && seen.st_ino == of.inode;
}

class mapped_holder::guest final : public loop_source {
public:
  guest(const mapped_holder& of, owned_fd fd)
      : of_(of), fd_(std::move(fd)), since_(of.time_.now()) {
    if (!of_.loop_.watch(fd_.get(), EPOLLIN, *this)) close();
  }
  ~guest() override { close(); }
  bool closed() const noexcept { return !fd_; }
  bool greeted() const noexcept { return greeted_; }
  time_point since() const noexcept { return since_; }
  void close() noexcept {
    if (!fd_) return;
    of_.loop_.forget(fd_.get(), *this);
    fd_.reset();
  }

  void on_ready(std::uint32_t) noexcept override {
    const auto got =
        ::recv(fd_.get(), greeting_.data() + filled_, greeting_.size() - filled_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    // After the greeting nothing comes but the end.
    if (got <= 0 || greeted_) return close();
    filled_ += static_cast<std::size_t>(got);
    if (filled_ < greeting_.size()) return;
    const auto how =
        stream_wire::check_greeting({greeting_.data(), filled_}, of_.key_, of_.boot_id_);
    greeted_ = how == stream_wire::status::ok && hand_over();
    filled_ = 0;
    if (greeted_) {
      of_.metrics_.served_requests.add();
      return;
    }
    of_.metrics_.served_refusals.add();
    if (how == stream_wire::status::refused) say(how, 0);
    close();
  }

private:
  bool say(stream_wire::status how, std::size_t files) noexcept {
    std::string text;
    stream_wire::put_greeting_answer(text, how);
    wire_writer writer(text);
    writer.number(static_cast<std::uint32_t>(files));
    for (std::size_t i = 0; i < files; ++i)
      writer.number(of_.regions_[i].file_offset);
    iovec piece{text.data(), text.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(mapped_regions_max * sizeof(int))> control{};
    if (files > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(files * sizeof(int));
      auto* const head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(files * sizeof(int));
      auto* to = CMSG_DATA(head);
      for (std::size_t i = 0; i < files; ++i, to += sizeof(int))
        std::memcpy(to, &of_.regions_[i].memfd, sizeof(int));
    }
    // A fresh socket's buffer takes a few KiB at once.
    const auto sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == static_cast<ssize_t>(text.size());
  }
  bool hand_over() noexcept { return say(stream_wire::status::ok, of_.regions_.size()); }

  const mapped_holder& of_;
  owned_fd fd_;
  time_point since_;
  bool greeted_ = false;
  std::array<char, stream_wire::greeting_bytes> greeting_{};
  std::size_t filled_ = 0;
};

mapped_holder::mapped_holder(event_loop& loop, const clock& time, peer_metrics& metrics,
                             std::span<const peer_region> regions, std::string key,
                             std::string boot_id)
    : loop_(loop), time_(time), metrics_(metrics), regions_(regions), key_(std::move(key)),
      boot_id_(std::move(boot_id)) {}

mapped_holder::~mapped_holder() {
  guests_.clear();
  if (fd_) loop_.forget(fd_.get(), *this);
  if (!path_.empty()) ::unlink(path_.c_str());
  if (!folder_.empty()) ::rmdir(folder_.c_str());
}

result<void> mapped_holder::bind(const std::string& parent) {
  const auto refused = [](std::string_view what, const std::string& path) {
    return fail(errc::io, fmt::format("the socket for peers on this host: {} {}: {}", what, path,
                                      std::strerror(errno)));
  };
  auto folder = parent + "/kvd-peer-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return refused("making", folder);  // mode 0700
  folder_ = folder;
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const auto path = folder + "/pool";
  if (path.size() >= sizeof at.sun_path) {
    errno = ENAMETOOLONG;
    return refused("binding", path);
  }
  std::copy(path.begin(), path.end(), at.sun_path);
  fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // Nobody else can reach it before the mode is set: the directory is ours alone.
  if (!fd_ || ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
    return refused("binding", path);
  }
  path_ = path;
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(fd_.get(), 128) != 0 ||
      !loop_.watch(fd_.get(), EPOLLIN, *this)) {
    return refused("listening on", path);
  }
  return {};
}

result<peer_address::mapped_section> mapped_holder::open(const std::string& parent) {
  result<void> bound;
  for (const auto& each : parents_of(parent)) {
    bound = bind(each);
    if (bound) break;
    if (!folder_.empty()) ::rmdir(folder_.c_str());
    folder_.clear();
  }
  if (!bound) return tl::unexpected(std::move(bound.error()));
  struct stat seen {};
  if (::lstat(path_.c_str(), &seen) != 0) return fail(errc::io, "the socket for peers is gone");
  return peer_address::mapped_section{running_host_id(), seen.st_dev, seen.st_ino, path_};
}

void mapped_holder::on_ready(std::uint32_t) noexcept {
  for (;;) {
    owned_fd next(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!next) return;
    if (guests_.size() < mapped_guests_max) {
      guests_.push_back(std::make_unique<guest>(*this, std::move(next)));
    }
  }
}

time_point mapped_holder::tick(time_point now) noexcept {
  auto next = time_point::max();
  for (auto& each : guests_) {
    if (each->closed() || each->greeted()) continue;
    const auto until = each->since() + mapped_greeting_max;
    if (now >= until) each->close();
    next = std::min(next, until);
  }
  std::erase_if(guests_, [](const auto& each) { return each->closed(); });
  return next;
}

}  // namespace kvd
