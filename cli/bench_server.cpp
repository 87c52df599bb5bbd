#include "cli/bench_server.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include <boost/json.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.hpp"
#include "core/units.hpp"
#include "transport/http/http_get.hpp"

namespace kvd {

namespace {

// Touching a pool of terabytes takes minutes; nothing else at start takes long.
constexpr auto ready_timeout = std::chrono::minutes(5);
constexpr auto stop_timeout = std::chrono::seconds(40);  // beyond the server's own drain deadline
constexpr int poll_ms = 10;
constexpr std::size_t lines_kept = 20;

std::string word_after(std::string_view line, std::string_view key) {
  const auto at = line.find(key);
  if (at == std::string_view::npos) return {};
  const auto rest = line.substr(at + key.size());
  return std::string(rest.substr(0, rest.find_first_of(" \t\r\n,;")));
}

}  // namespace

server_addresses addresses_in(std::string_view log_line) {
  server_addresses found{word_after(log_line, " grpc="), word_after(log_line, " http=")};
  if (found.grpc.empty() || found.http.empty()) return {};
  return found;
}

std::uint64_t status_number(const std::string& http, std::string_view pointer, const clock& time) {
  const auto answer = http::get(http, "/status", time, std::chrono::seconds(30));
  if (!answer || answer->status != 200) return 0;
  boost::json::error_code code;
  const auto status = boost::json::parse(answer->body, code);
  const auto* number = code ? nullptr : status.find_pointer(pointer, code);
  return number != nullptr && number->is_number() ? number->to_number<std::uint64_t>() : 0;
}

std::vector<std::string> server_flags(std::uint64_t pool_bytes, const std::string& ssd_path,
                                      std::uint64_t ssd_bytes) {
  std::vector<std::string> flags{"--pool-size", format_bytes(pool_bytes)};
  if (ssd_path.empty()) return flags;
  // Some segments are open, or being emptied.
  const auto capacity = ssd_bytes * 11 / 10 + (64 << 20);
  flags.insert(flags.end(),
               {"--ssd-cache-path", ssd_path, "--ssd-cache-capacity",
                fmt::format("{}mb", capacity >> 20), "--ssd-wipe", "--ssd-min-free", "0b"});
  return flags;
}

struct child_server::process {
  pid_t pid = -1;
  int log_fd = -1;
  std::thread reader;
  std::mutex mutex;  // guards what follows, which the reader writes
  std::deque<std::string> last_lines;
  server_addresses addresses;

  void read_log() {
    std::string pending;
    char chunk[4096];
    for (;;) {
      const auto got = ::read(log_fd, chunk, sizeof chunk);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return;
      pending.append(chunk, static_cast<std::size_t>(got));
      for (auto end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
        take_line(pending.substr(0, end));
        pending.erase(0, end + 1);
      }
    }
  }

  void take_line(std::string line) {
    const std::scoped_lock lock(mutex);
    if (addresses.grpc.empty()) addresses = addresses_in(line);
    last_lines.push_back(std::move(line));
    if (last_lines.size() > lines_kept) last_lines.pop_front();
  }

  server_addresses known_addresses() {
    const std::scoped_lock lock(mutex);
    return addresses;
  }

  std::string log_tail() {
    const std::scoped_lock lock(mutex);
    std::string text;
    for (const auto& line : last_lines)
      text += "\n  " + line;
    return text;
  }

  bool ended() noexcept {
    if (pid > 0 && ::waitpid(pid, nullptr, WNOHANG) == pid) pid = -1;
    return pid < 0;
  }
};

child_server::child_server(std::unique_ptr<process> running) : process_(std::move(running)) {}

long child_server::pid() const noexcept {
  return process_->pid;
}

namespace {

// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(const char* path, char* const* arguments, int log_fd, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl
  ::dup2(log_fd, STDERR_FILENO);
  ::dup2(log_fd, STDOUT_FILENO);
  ::execv(path, arguments);
  ::_exit(127);
}

// The child's pid and the end of the pipe that its log comes out of.
result<std::pair<pid_t, int>> launch(const child_options& options) {
  const std::string path = options.executable.empty() ? "/proc/self/exe" : options.executable;
  std::vector<std::string> words{path,          options.role,  "--addr",
                                 "127.0.0.1:0", "--http-addr", "127.0.0.1:0"};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> arguments;
  for (auto& word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(errc::io, fmt::format("a pipe for the server's log: {}", std::strerror(errno)));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(path.c_str(), arguments.data(), ends[1], parent);
  const int code = errno;
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    return fail(errc::io,
                fmt::format("starting {} {}: {}", path, options.role, std::strerror(code)));
  }
  return std::pair{pid, ends[0]};
}

bool is_ready(const std::string& http, const clock& time) {
  const auto answer = http::get(http, "/ready", time, std::chrono::seconds(2));
  return answer && answer->status == 200;
}

}  // namespace

result<std::unique_ptr<child_server>> child_server::start(const child_options& options,
                                                          const clock& time) {
  const auto launched = launch(options);
  if (!launched) return tl::unexpected(launched.error());
  std::unique_ptr<child_server> server(new child_server(std::make_unique<process>()));
  auto* const child = server->process_.get();
  child->pid = launched->first;
  child->log_fd = launched->second;
  child->reader = std::thread([child] { child->read_log(); });
  const auto deadline = time.now() + ready_timeout;
  while (time.now() < deadline) {
    if (child->ended()) {
      child->reader.join();  // it has read all that the server wrote
      return fail(errc::unavailable,
                  "the server ended while it started; it wrote:" + child->log_tail());
    }
    const auto addresses = child->known_addresses();
    if (!addresses.grpc.empty() && is_ready(addresses.http, time)) {
      server->addresses_ = addresses;
      return server;
    }
    pause_ms(poll_ms);
  }
  return fail(errc::unavailable,
              fmt::format("the server was not ready within {} s; it wrote:{}",
                          std::chrono::seconds(ready_timeout).count(), child->log_tail()));
}

child_server::~child_server() {
  auto& child = *process_;
  if (!child.ended()) {
    ::kill(child.pid, SIGTERM);
    const system_clock time;
    const auto deadline = time.now() + stop_timeout;
    while (!child.ended() && time.now() < deadline)
      pause_ms(poll_ms);
    if (child.pid > 0) {
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
  }
  if (child.reader.joinable()) child.reader.join();
  if (child.log_fd >= 0) ::close(child.log_fd);
}

}  // namespace kvd
