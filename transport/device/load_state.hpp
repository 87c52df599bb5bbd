#pragma once
// The flag through which a load says that it is over: 32 bytes of the client's shared memory.
//
//   0                8       12      16              24              32
//   +----------------+-------+-------+---------------+---------------+
//   | u64 offset (8) | magic | ver 1 | i64 state     | padding       |   magic 0x50464C44
//   +----------------+-------+-------+---------------+---------------+
//
// state: 0 pending, 1 loaded, -1 failed; stored with release order, read with acquire. The client
// creates and unlinks the object; an unlinked one means that nobody waits any more. A leading
// offset other than 8 moves magic, version and state: they start at `offset`.
//
// A load that succeeded is told with pwrite(2), which reaches the same page that the client has
// mapped, costs no page-table work, and cannot raise SIGBUS when the client has shrunk the object.
// Only a failure maps the flag for the time of one store: see publish().

#include <cstdint>
#include <string_view>

#include "core/error.hpp"
#include "transport/device/shm_object.hpp"

namespace kvd {

class load_state {
public:
  // Opens the client's flag and checks its header. errc::device names the object and what does not
  // fit.
  static result<load_state> attach(std::string_view name);

  // Everything this thread saw before is visible to a client that sees `state`. Failure is not
  // reported: it means that the client destroyed its own flag.
  void publish(std::int64_t state) noexcept;
  // True once the client has unlinked the object. One fstat.
  bool abandoned() const noexcept { return object_.unlinked(); }

private:
  load_state(shm_object object, std::int64_t state_offset) noexcept
      : object_(std::move(object)), state_offset_(state_offset) {}
  shm_object object_;
  std::int64_t state_offset_;
};

}  // namespace kvd
