#pragma once
// Engine memory that is POSIX shared memory on this host, mapped into this process.
//
// One object is mapped once per process, however many tensors lie in it and however often it is
// named: the mapping is found by (filesystem, inode), so a name that was removed and created again
// is another object. A mapping closes when the last tensor in it goes.

#include <memory>
#include <span>

#include "core/error.hpp"
#include "transport/device/device_memory.hpp"

namespace kvd {

class shm_mappings;

class host_opener final : public device_opener {
public:
  // `owner` copies to and from everything that is opened here, and outlives it.
  explicit host_opener(device& owner);
  ~host_opener() override;

  // Any thread. errc::invalid_argument: not a wrapper at all. errc::device: no such object, a
  // tensor beyond its end, not mappable, or a CUDA handle, which this process cannot open.
  result<std::shared_ptr<device_memory>> open(std::span<const std::byte> wrapper) override;
  // Objects mapped now.
  std::size_t mapped_objects() const;

private:
  device& owner_;
  std::shared_ptr<shm_mappings> mappings_;  // shared with every open tensor, which may outlive us
};

}  // namespace kvd
