#include "transport/device/host_tensor.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/device/wrapper.hpp"

namespace kvd {

namespace {

constexpr std::uint64_t flag_offset = 8;  // the magic follows the offset at once
constexpr std::uint32_t flag_magic = 0x50464C44;
constexpr std::uint32_t flag_version = 1;
constexpr std::size_t load_flag_bytes = 32;
constexpr std::size_t flag_state_at = 16;

// Between two looks at a flag. Short beside any copy that is worth waiting for, long enough to
// leave the cores to the threads that copy.
constexpr long flag_poll_ns = 20'000;

std::string random_hex(random_source& random) {
  std::array<std::byte, 16> bytes{};
  random.fill(bytes);
  std::string text;
  for (const auto byte : bytes)
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

error refused(std::string_view what, const std::string& name, std::size_t bytes, int code) {
  return {errc::io, fmt::format("{} of shared memory object {} ({} bytes): {}", what, name, bytes,
                                std::strerror(code))};
}

std::int64_t& state_of(std::span<std::byte> flag) noexcept {
  return *reinterpret_cast<std::int64_t*>(flag.data() + flag_state_at);
}

}  // namespace

result<shared_object> shared_object::create(std::string_view prefix, std::size_t bytes,
                                            random_source& random) {
  shared_object object(std::string(prefix) + random_hex(random));
  const auto path = "/" + object.name_;
  const int fd = ::shm_open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    const int code = errno;
    auto name = std::exchange(object.name_, {});  // not ours to unlink
    return tl::unexpected(refused("creation", name, bytes, code));
  }
  // posix_fallocate, not ftruncate: a full /dev/shm is an error here instead of SIGBUS later.
  int code = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  std::string_view what = "allocation";
  if (code == 0) {
    // MAP_POPULATE: page faults are no part of what the tools measure.
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (at == MAP_FAILED) {
      code = errno;
      what = "mapping";
    } else {
      object.mapping_ = {static_cast<std::byte*>(at), bytes};
    }
  }
  ::close(fd);
  if (code != 0) return tl::unexpected(refused(what, object.name_, bytes, code));
  return object;
}

shared_object::~shared_object() {
  if (!mapping_.empty()) ::munmap(mapping_.data(), mapping_.size());
  if (!name_.empty()) ::shm_unlink(("/" + name_).c_str());
}

result<host_tensor> host_tensor::create(std::size_t bytes, random_source& random) {
  auto object = shared_object::create("kvd_tensor_", bytes, random);
  if (!object) return tl::unexpected(std::move(object.error()));
  return host_tensor(std::move(*object));
}

std::vector<std::byte> host_tensor::wrapper(std::size_t offset, std::size_t size) const {
  return encode_host_wrapper(host_wrapper{object_.name(), offset, size});
}

result<load_flag> load_flag::create(random_source& random) {
  auto object = shared_object::create("kvd_load_", load_flag_bytes, random);
  if (!object) return tl::unexpected(std::move(object.error()));
  auto* at = object->bytes().data();
  std::memcpy(at, &flag_offset, sizeof flag_offset);
  std::memcpy(at + 8, &flag_magic, sizeof flag_magic);
  std::memcpy(at + 12, &flag_version, sizeof flag_version);
  return load_flag(std::move(*object));
}

void load_flag::reset() noexcept {
  std::atomic_ref(state_of(object_.bytes())).store(0, std::memory_order_release);
}

std::int64_t load_flag::state() const noexcept {
  return std::atomic_ref(state_of(object_.bytes())).load(std::memory_order_acquire);
}

result<void> load_flag::wait(const clock& time, time_point deadline) const {
  for (;;) {
    const auto now = state();
    if (now > 0) return {};
    if (now < 0) return fail(errc::device, fmt::format("the load ended with state {}", now));
    if (time.now() >= deadline) {
      return fail(errc::cancelled, fmt::format("load flag {} is still pending", name()));
    }
    const std::timespec pause{0, flag_poll_ns};
    ::ppoll(nullptr, 0, &pause, nullptr);
  }
}

}  // namespace kvd
