#include "transport/device/host_memory.hpp"

#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "transport/device/printable.hpp"
#include "transport/device/shm_object.hpp"
#include "transport/device/wrapper.hpp"

namespace kvd {

namespace {

struct object_id {
  dev_t filesystem;
  ino_t inode;
  auto operator<=>(const object_id&) const = default;
};

}  // namespace

// Every object that is mapped now. Tensors hold their mapping, mappings hold this.
class shm_mappings : public std::enable_shared_from_this<shm_mappings> {
public:
  class mapping {
  public:
    mapping(std::shared_ptr<shm_mappings> home, object_id id, std::byte* begin, std::uint64_t size)
        : home_(std::move(home)), id_(id), begin_(begin), size_(size) {}
    mapping(const mapping&) = delete;
    mapping& operator=(const mapping&) = delete;
    ~mapping() {
      ::munmap(begin_, size_);
      home_->forget(id_);
    }
    std::byte* begin() const noexcept { return begin_; }
    std::uint64_t size() const noexcept { return size_; }

  private:
    std::shared_ptr<shm_mappings> home_;
    object_id id_;
    std::byte* begin_;
    std::uint64_t size_;
  };

  result<std::shared_ptr<mapping>> map(const shm_object& object) {
    const object_id id{object.filesystem(), object.inode()};
    // Outlives the lock: letting go of a last reference takes it.
    std::shared_ptr<mapping> present;
    const std::lock_guard lock(mutex_);
    auto& known = by_id_[id];
    present = known.lock();
    // An object that has grown is mapped again; tensors in the old mapping keep it.
    if (present != nullptr && present->size() >= object.size()) return present;
    auto* begin =
        ::mmap(nullptr, object.size(), PROT_READ | PROT_WRITE, MAP_SHARED, object.fd(), 0);
    if (begin == MAP_FAILED) {
      const auto number = errno;
      if (present == nullptr) by_id_.erase(id);
      return fail(errc::device,
                  fmt::format("shared memory {}: cannot map {} bytes: {}", printable(object.name()),
                              object.size(), std::generic_category().message(number)));
    }
    // Takes effect where the kernel gives shared memory huge pages, is refused elsewhere.
    ::madvise(begin, object.size(), MADV_HUGEPAGE);
    auto fresh = std::make_shared<mapping>(shared_from_this(), id, static_cast<std::byte*>(begin),
                                           object.size());
    known = fresh;
    return fresh;
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return by_id_.size();
  }

private:
  // A mapping of `id` is gone. Another one may have taken its place already.
  void forget(const object_id& id) {
    const std::lock_guard lock(mutex_);
    const auto known = by_id_.find(id);
    if (known != by_id_.end() && known->second.expired()) by_id_.erase(known);
  }

  mutable std::mutex mutex_;
  std::map<object_id, std::weak_ptr<mapping>> by_id_;  // guarded by mutex_
};

namespace {

class host_memory final : public device_memory {
public:
  host_memory(std::shared_ptr<shm_mappings::mapping> mapping, const host_wrapper& wrapper,
              device& owner)
      : mapping_(std::move(mapping)), data_(mapping_->begin() + wrapper.offset),
        size_(wrapper.size), owner_(owner) {}
  std::byte* data() const noexcept override { return data_; }
  std::size_t size() const noexcept override { return size_; }
  device& owner() const noexcept override { return owner_; }

private:
  std::shared_ptr<shm_mappings::mapping> mapping_;
  std::byte* data_;
  std::size_t size_;
  device& owner_;
};

}  // namespace

host_opener::host_opener(device& owner)
    : owner_(owner), mappings_(std::make_shared<shm_mappings>()) {}

host_opener::~host_opener() = default;

result<std::shared_ptr<device_memory>> host_opener::open(std::span<const std::byte> wrapper) {
  const auto decoded = decode_wrapper(wrapper);
  if (!decoded) return tl::unexpected<error>(decoded.error());
  if (const auto* cuda = std::get_if<cuda_wrapper>(&*decoded)) {
    return fail(errc::device, fmt::format("CUDA handle of GPU {}: this process has no CUDA device "
                                          "(host memory wrappers are accepted)",
                                          printable(cuda->device_uuid)));
  }
  const auto& host = std::get<host_wrapper>(*decoded);
  const auto object = shm_object::open(host.name);
  if (!object) return tl::unexpected<error>(object.error());
  if (host.offset > object->size() || host.size > object->size() - host.offset) {
    return fail(errc::device,
                fmt::format("shared memory {}: tensor at offset {} of {} bytes does not fit into "
                            "the object's {} bytes",
                            printable(host.name), host.offset, host.size, object->size()));
  }
  auto mapping = mappings_->map(*object);
  if (!mapping) return tl::unexpected<error>(std::move(mapping.error()));
  return std::make_shared<host_memory>(std::move(*mapping), host, owner_);
}

std::size_t host_opener::mapped_objects() const {
  return mappings_->size();
}

}  // namespace kvd
