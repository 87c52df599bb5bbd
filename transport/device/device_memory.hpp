#pragma once
// A registered tensor of an engine, as bytes that copies may touch.
//
// Owner: shared by the instance's layers and by every copy in flight (that is why it is a
// shared_ptr): the mapping closes when the last of them lets go, never under a running copy.
// One process maps one object once, however many layers name it.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/error.hpp"
#include "transport/device/copy_job.hpp"

namespace kvd {

class device_memory {
public:
  virtual ~device_memory() = default;
  virtual std::byte* data() const noexcept = 0;  // first byte of the tensor
  virtual std::size_t size() const noexcept = 0;
  virtual device& owner() const noexcept = 0;  // who copies from and to it; outlives this
};

// Opens what a client's wrapper names. Any thread. errc::device says why not: unknown wrapper,
// object missing or too small, CUDA handle without CUDA.
class device_opener {
public:
  virtual ~device_opener() = default;
  virtual result<std::shared_ptr<device_memory>> open(std::span<const std::byte> wrapper) = 0;
};

}  // namespace kvd
