#pragma once
// What a client sends to name its KV memory: kvd's host wrapper, or PegaFlow's pickled CUDA
// wrapper.
//
// Host wrapper (docs/device.md), little endian:
//
//   0        8        16       24    28
//   +--------+--------+--------+-----+----------------+
//   |KVDHOST1| offset | size   |n u32| name, n bytes  |   total length is 28 + n exactly
//   +--------+--------+--------+-----+----------------+
//
// `name` is a POSIX shared-memory object (with or without the leading slash, no other slash),
// [offset, offset + size) the tensor inside it.
//
// The pickle is never executed: a decoder of the few opcodes that PegaFlow's class needs reads it;
// any other opcode or global is refused by name.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/error.hpp"

namespace kvd {

struct host_wrapper {
  std::string name;  // without the leading slash
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct cuda_wrapper {
  enum class handle_kind : std::uint8_t { cuda_malloc, expandable };
  handle_kind kind = handle_kind::cuda_malloc;
  std::vector<std::byte> handle;  // cuda_malloc: the 64-byte cudaIpcMemHandle_t
  std::int64_t client_device = 0;
  std::uint64_t storage_bytes = 0;
  std::uint64_t base_offset_bytes = 0;  // of the storage inside its base allocation
  std::string dtype;                    // "bfloat16"
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;
  std::int64_t storage_offset = 0;
  std::string device_uuid;  // 36 characters, no "GPU-" prefix
};

using memory_wrapper = std::variant<host_wrapper, cuda_wrapper>;

// errc::invalid_argument says what is wrong and at which byte.
result<memory_wrapper> decode_wrapper(std::span<const std::byte> bytes);
std::vector<std::byte> encode_host_wrapper(const host_wrapper& wrapper);

}  // namespace kvd
