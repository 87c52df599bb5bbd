#include "transport/peer/pool_mapping.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "transport/peer/pool_lookup.hpp"

namespace kvd {

namespace {

constexpr std::size_t huge_alignment = std::size_t{2} << 20;

}  // namespace

pool_mapping::~pool_mapping() {
  for (const auto& range : ranges_)
    ::munmap(range.base, range.bytes);
}

result<void> pool_mapping::add(const peer_address::region& region, const owned_fd& file,
                               std::uint64_t file_offset) {
  struct stat facts {};
  const auto end = file_offset + region.bytes;
  if (::fstat(file.get(), &facts) != 0 || end < file_offset || file_offset % huge_alignment != 0 ||
      end > static_cast<std::uint64_t>(facts.st_size)) {
    return fail(errc::invalid_argument, "the file of the peer's pool is not what it said");
  }
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return fail(errc::invalid_argument, "the peer could cut its pool off: it is not sealed");
  }
  const auto bytes = static_cast<std::size_t>(region.bytes);
  void* const space = ::mmap(nullptr, bytes + huge_alignment, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return fail(errc::io, std::strerror(errno));
  auto* const whole = static_cast<std::byte*>(space);
  const auto over = reinterpret_cast<std::uintptr_t>(space) % huge_alignment;
  auto* const at = whole + (over == 0 ? 0 : huge_alignment - over);
  void* const base = ::mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file.get(),
                            static_cast<off_t>(file_offset));
  if (base == MAP_FAILED) {
    const auto why = std::strerror(errno);
    ::munmap(space, bytes + huge_alignment);
    return fail(errc::io, fmt::format("mapping {} bytes of the peer's pool: {}", bytes, why));
  }
  ranges_.push_back({space, bytes + huge_alignment});
  regions_.push_back({at, region.bytes, region.pool_offset, -1, 0});
  return {};
}

const std::byte* pool_mapping::at(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const auto* const region = region_of(regions_, offset, bytes);
  return region == nullptr ? nullptr : region->base + (offset - region->pool_offset);
}

}  // namespace kvd
