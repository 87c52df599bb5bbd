#pragma once
// The engine's side of host memory, for kvd's own tools and tests: a tensor in POSIX shared memory
// that kvd can be told of, and the flag through which a load says that it is over.
//
// Owner: whoever plays the engine; both unlink their object when they go, so nothing stays behind
// in /dev/shm unless the process is killed. Not thread-safe, but for the tensor's bytes and wait().

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/random.hpp"

namespace kvd {

// A new shared-memory object of a random name, mapped, every page of it present.
class shared_object {
public:
  // Named `<prefix><32 hex>`. errc::io names the object, its size and what the system said.
  static result<shared_object> create(std::string_view prefix, std::size_t bytes,
                                      random_source& random);
  shared_object(shared_object&& other) noexcept
      : name_(std::exchange(other.name_, {})),
        mapping_(std::exchange(other.mapping_, std::span<std::byte>{})) {}
  shared_object& operator=(shared_object&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(mapping_, other.mapping_);
    return *this;
  }
  ~shared_object();

  const std::string& name() const noexcept { return name_; }  // without the leading slash
  std::span<std::byte> bytes() const noexcept { return mapping_; }

private:
  explicit shared_object(std::string name) : name_(std::move(name)) {}
  std::string name_;
  std::span<std::byte> mapping_;
};

class host_tensor {
public:
  static result<host_tensor> create(std::size_t bytes, random_source& random);
  std::span<std::byte> bytes() const noexcept { return object_.bytes(); }
  // What to send as wrapper_bytes for [offset, offset + size). REQUIRES: inside the tensor.
  std::vector<std::byte> wrapper(std::size_t offset, std::size_t size) const;

private:
  explicit host_tensor(shared_object object) : object_(std::move(object)) {}
  shared_object object_;
};

// The 32 bytes of transport/device/load_state.hpp, from the side that creates them.
class load_flag {
public:
  static result<load_flag> create(random_source& random);
  const std::string& name() const noexcept { return object_.name(); }
  // Pending again, for the next load. REQUIRES: no load that was given this flag is under way.
  void reset() noexcept;
  // 0 pending, 1 loaded, negative: failed. Loaded bytes are visible to who saw 1.
  std::int64_t state() const noexcept;
  // Blocks until the load is over. errc::device: it failed; errc::cancelled: `deadline` passed.
  result<void> wait(const clock& time, time_point deadline) const;

private:
  explicit load_flag(shared_object object) : object_(std::move(object)) {}
  shared_object object_;
};

}  // namespace kvd
