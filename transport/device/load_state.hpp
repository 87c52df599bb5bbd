#pragma once
// The flag through which a load says that it is over: 32 bytes of the client's shared memory.
//
//   0                8       12      16              24              32
//   +----------------+-------+-------+---------------+---------------+
//   | u64 offset (8) | magic | ver 1 | i64 state     | padding       |   magic 0x50464C44
//   +----------------+-------+-------+---------------+---------------+
//
// state: 0 pending, 1 loaded, -1 failed; stored with release order, read with acquire. The client
// creates and unlinks the object; an unlinked one means that nobody waits any more.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace kvd {

class load_state {
public:
  // Maps the client's flag. errc::device names the object and what does not fit.
  static result<load_state> attach(std::string_view name);
  load_state(load_state&& other) noexcept;
  load_state& operator=(load_state&& other) noexcept;
  ~load_state();

  void publish(std::int64_t state) noexcept;
  // True once the client has unlinked the object. One fstat.
  bool abandoned() const noexcept;

private:
  load_state() = default;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::int64_t* state_ = nullptr;
  int fd_ = -1;
};

}  // namespace kvd
