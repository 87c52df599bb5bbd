#include "transport/device/load_state.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/device/copy_slice.hpp"
#include "transport/device/printable.hpp"
#include "transport/device/stream_copy.hpp"

namespace kvd {

static_assert(std::endian::native == std::endian::little, "the flag is little endian");

namespace {

constexpr std::uint64_t flag_object_bytes_min = 32;
constexpr std::uint32_t expected_magic = 0x50464C44;
constexpr std::uint32_t expected_version = 1;

// What `offset` points at.
struct flag_header {
  std::uint32_t magic;
  std::uint32_t version;
};
constexpr std::uint64_t state_in_flag = sizeof(flag_header);
constexpr std::uint64_t state_end_in_flag = state_in_flag + sizeof(std::int64_t);

template<class T>
bool read_flag(int fd, std::uint64_t offset, T& out) {
  return ::pread(fd, &out, sizeof out, static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(sizeof out);
}

// False when the page cannot be mapped, or is no longer there.
bool store_mapped(int fd, std::int64_t offset, std::int64_t state) noexcept {
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = offset / page * page;
  auto* mapped = ::mmap(nullptr, static_cast<std::size_t>(page), PROT_READ | PROT_WRITE, MAP_SHARED,
                        fd, begin);
  if (mapped == MAP_FAILED) return false;
  install_fault_guard();
  auto* word = static_cast<std::byte*>(mapped) + (offset - begin);
  const bool stored = store_word(reinterpret_cast<std::int64_t*>(word), state);
  ::munmap(mapped, static_cast<std::size_t>(page));
  return stored;
}

}  // namespace

result<load_state> load_state::attach(std::string_view name) {
  auto object = shm_object::open(name);
  if (!object) return tl::unexpected<error>(std::move(object.error()));
  const auto unfit = [&object](std::string_view why) {
    return fail(errc::device, fmt::format("load state {}: {}", printable(object->name()), why));
  };
  const auto size = object->size();
  if (size < flag_object_bytes_min) {
    return unfit(fmt::format("{} bytes, at least {} are needed", size, flag_object_bytes_min));
  }
  std::uint64_t offset = 0;
  if (!read_flag(object->fd(), 0, offset)) return unfit("its header cannot be read");
  if (offset < sizeof offset || offset % alignof(std::int64_t) != 0 || offset > size ||
      size - offset < state_end_in_flag) {
    return unfit(fmt::format("flag offset {} is not a multiple of 8 in [8, {}]", offset,
                             size - state_end_in_flag));
  }
  flag_header header{};
  if (!read_flag(object->fd(), offset, header)) return unfit("its header cannot be read");
  if (header.magic != expected_magic) {
    return unfit(fmt::format("magic {:#010x}, expected {:#010x}", header.magic, expected_magic));
  }
  if (header.version != expected_version) {
    return unfit(fmt::format("version {}, expected {}", header.version, expected_version));
  }
  return load_state(std::move(*object), static_cast<std::int64_t>(offset + state_in_flag));
}

void load_state::publish(std::int64_t state) noexcept {
  // The kernel orders nothing for us by contract, so the copied bytes come first by fence.
  stream_fence();
  // The kernel may copy the eight bytes one by one. From 0 to 1 changes one byte, which cannot
  // tear. From 0 to a negative number changes all of them, and a reader in between would see some
  // other number, success perhaps.
  if (state < 0 && store_mapped(object_.fd(), state_offset_, state)) return;
  // Where nothing can be mapped, the byte with the sign goes first, alone: whatever is seen in
  // between says failure, too.
  if (state < 0) {
    const auto sign = static_cast<unsigned char>(static_cast<std::uint64_t>(state) >> 56);
    if (::pwrite(object_.fd(), &sign, 1, state_offset_ + 7) != 1) return;
  }
  [[maybe_unused]] const auto written = ::pwrite(object_.fd(), &state, sizeof state, state_offset_);
}

}  // namespace kvd
