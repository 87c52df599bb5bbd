#include "transport/device/wrapper.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/limits.hpp"
#include "transport/device/pickle_reader.hpp"
#include "transport/device/printable.hpp"
#include "transport/device/shm_object.hpp"

namespace kvd {

static_assert(std::endian::native == std::endian::little, "the host wrapper is little endian");

namespace {

constexpr std::string_view host_magic = "KVDHOST1";
constexpr std::size_t host_header_bytes = 28;
constexpr unsigned char pickle_first_byte = 0x80;
constexpr std::size_t dimensions_max = 16;
constexpr std::size_t ipc_handle_bytes = 64;
constexpr std::size_t expandable_header_bytes = 24;
constexpr std::uint64_t expandable_handles_max = 4096;

template<class T>
T read_at(std::string_view bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

tl::unexpected<error> refuse_wrapper(std::string detail) {
  return fail(errc::invalid_argument, std::move(detail));
}

result<memory_wrapper> decode_host(std::string_view bytes) {
  if (bytes.size() < host_header_bytes) {
    return refuse_wrapper(fmt::format("host wrapper: {} bytes, the header alone has {}",
                                      bytes.size(), host_header_bytes));
  }
  host_wrapper wrapper;
  wrapper.offset = read_at<std::uint64_t>(bytes, 8);
  wrapper.size = read_at<std::uint64_t>(bytes, 16);
  const auto name_bytes = read_at<std::uint32_t>(bytes, 24);
  if (name_bytes != bytes.size() - host_header_bytes) {
    return refuse_wrapper(
        fmt::format("host wrapper: the name has {} bytes by the count at byte 24, {} "
                    "follow it",
                    name_bytes, bytes.size() - host_header_bytes));
  }
  if (wrapper.size == 0) return refuse_wrapper("host wrapper: the size at byte 16 is 0");
  if (wrapper.offset > std::numeric_limits<std::uint64_t>::max() - wrapper.size) {
    return refuse_wrapper(fmt::format("host wrapper: offset {} plus size {} is beyond 64 bits",
                                      wrapper.offset, wrapper.size));
  }
  auto name = shm_object_name(bytes.substr(host_header_bytes));
  if (!name) return refuse_wrapper(fmt::format("host wrapper: {}", name.error().detail));
  wrapper.name = std::move(*name);
  return wrapper;
}

// Reads the typed fields of the wrapper's state. The first thing that does not fit is kept in
// wrong(); the getters answer with empty values from then on.
class state_reader {
public:
  using kind = pickle_value::kind;

  explicit state_reader(const pickle_tree& tree) : tree_(tree) {}

  const std::optional<std::string>& wrong() const { return wrong_; }
  void reject(std::string why) {
    if (!wrong_) wrong_ = std::move(why);
  }

  void open() {
    const auto& root = tree_.at(tree_.root);
    if (root.type != kind::object) {
      return reject(
          fmt::format("the pickle holds a {}, expected a wrapper object", kvd::name(root.type)));
    }
    if (root.state == 0) return reject("the wrapper object has no state");
    state_ = &tree_.at(root.state);
    for (std::size_t i = 0; i < state_->items.size(); i += 2) {
      const auto& key = tree_.at(state_->items[i]);
      if (key.type != kind::text) {
        return reject(fmt::format("a state key is a {}, expected str", kvd::name(key.type)));
      }
      for (std::size_t j = 0; j < i; j += 2) {
        if (tree_.at(state_->items[j]).text == key.text) {
          return reject(fmt::format("key {} is there twice", printable(key.text)));
        }
      }
    }
  }

  const pickle_value& field(std::string_view key, kind type) {
    if (wrong_) return empty_;
    for (std::size_t i = 0; i < state_->items.size(); i += 2) {
      if (tree_.at(state_->items[i]).text == key) {
        return checked(tree_.at(state_->items[i + 1]), type, key);
      }
    }
    reject(fmt::format("key '{}' is missing", key));
    return empty_;
  }

  const pickle_value& item(const pickle_value& tuple, std::size_t index, kind type,
                           std::string_view what) {
    if (wrong_) return empty_;
    return checked(tree_.at(tuple.items[index]), type, what);
  }

  std::int64_t natural(const pickle_value& value, std::string_view what) {
    if (value.number < 0) reject(fmt::format("{} is {}, expected 0 or more", what, value.number));
    return value.number;
  }

  std::vector<std::int64_t> naturals(const pickle_value& tuple, std::string_view what) {
    std::vector<std::int64_t> numbers;
    if (tuple.items.size() > dimensions_max) {
      reject(fmt::format("{} has {} dimensions, at most {}", what, tuple.items.size(),
                         dimensions_max));
    }
    for (std::size_t i = 0; i < tuple.items.size() && !wrong_; ++i) {
      numbers.push_back(natural(item(tuple, i, kind::integer, what), what));
    }
    return numbers;
  }

private:
  const pickle_value& checked(const pickle_value& value, kind type, std::string_view what) {
    if (value.type == type) return value;
    reject(fmt::format("{} is a {}, expected {}", what, kvd::name(value.type), kvd::name(type)));
    return empty_;
  }

  const pickle_tree& tree_;
  const pickle_value* state_ = nullptr;
  const pickle_value empty_;
  std::optional<std::string> wrong_;
};

std::vector<std::byte> to_bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// torch's own framing of a memory handle: nothing (older releases), or a version and a kind.
void read_handle(std::string_view bytes, state_reader& reader, cuda_wrapper& wrapper) {
  if (bytes.size() == ipc_handle_bytes) {
    wrapper.handle = to_bytes(bytes);
    return;
  }
  if (bytes.size() < 2 || bytes[0] != 2) {
    return reader.reject(fmt::format("memory handle of {} bytes: neither 64 nor a handle of "
                                     "version 2",
                                     bytes.size()));
  }
  const auto body = bytes.substr(2);
  if (bytes[1] == 'c' && body.size() == ipc_handle_bytes) {
    wrapper.handle = to_bytes(body);
  } else if (bytes[1] == 'e' && body.size() >= expandable_header_bytes) {
    const auto handles = read_at<std::uint64_t>(body, 16);
    if (handles > expandable_handles_max ||
        body.size() != expandable_header_bytes + handles * sizeof(std::int32_t)) {
      return reader.reject(fmt::format("expandable memory handle of {} bytes does not hold {} "
                                       "descriptors",
                                       bytes.size(), handles));
    }
    wrapper.kind = cuda_wrapper::handle_kind::expandable;
    wrapper.handle = to_bytes(body);
  } else {
    reader.reject(fmt::format("memory handle of kind {} with {} bytes is unknown",
                              printable(bytes.substr(1, 1)), bytes.size()));
  }
}

void read_handle_tuple(state_reader& reader, cuda_wrapper& wrapper) {
  using kind = pickle_value::kind;
  const auto& tuple = reader.field("handle", kind::tuple);
  if (reader.wrong()) return;
  if (tuple.items.size() != 8) {
    return reader.reject(fmt::format("key 'handle' has {} items, expected 8", tuple.items.size()));
  }
  wrapper.client_device =
      reader.natural(reader.item(tuple, 0, kind::integer, "handle[0] (device)"), "handle[0]");
  const auto& handle = reader.item(tuple, 1, kind::bytes, "handle[1] (memory handle)");
  wrapper.storage_bytes = static_cast<std::uint64_t>(reader.natural(
      reader.item(tuple, 2, kind::integer, "handle[2] (storage bytes)"), "handle[2]"));
  wrapper.base_offset_bytes = static_cast<std::uint64_t>(
      reader.natural(reader.item(tuple, 3, kind::integer, "handle[3] (base offset)"), "handle[3]"));
  // The rest is torch's own bookkeeping: checked, not used.
  reader.item(tuple, 4, kind::bytes, "handle[4] (reference counter)");
  reader.item(tuple, 5, kind::integer, "handle[5] (reference counter offset)");
  reader.item(tuple, 6, kind::bytes, "handle[6] (event handle)");
  reader.item(tuple, 7, kind::boolean, "handle[7] (event sync)");
  if (!reader.wrong()) read_handle(handle.text, reader, wrapper);
}

bool is_uuid(std::string_view text) {
  constexpr std::string_view shape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  return std::equal(text.begin(), text.end(), shape.begin(), shape.end(), [](char c, char s) {
    return s == '-' ? c == '-' : std::isxdigit(static_cast<unsigned char>(c)) != 0;
  });
}

result<memory_wrapper> decode_pickle(std::span<const std::byte> bytes) {
  using kind = pickle_value::kind;
  const auto tree = read_pickle(bytes);
  if (!tree) return tl::unexpected<error>(tree.error());
  cuda_wrapper wrapper;
  state_reader reader(*tree);
  reader.open();
  read_handle_tuple(reader, wrapper);
  const auto& dtype = reader.field("dtype", kind::global);
  const std::string_view torch = "torch.";
  if (!reader.wrong() && (!dtype.text.starts_with(torch) || dtype.text == "torch.Size")) {
    reader.reject(fmt::format("key 'dtype' is {}, expected an element type", dtype.text));
  }
  if (!reader.wrong()) wrapper.dtype = dtype.text.substr(torch.size());
  wrapper.shape = reader.naturals(reader.field("shape", kind::tuple), "key 'shape'");
  wrapper.stride = reader.naturals(reader.field("stride", kind::tuple), "key 'stride'");
  if (wrapper.shape.size() != wrapper.stride.size()) {
    reader.reject(fmt::format("key 'shape' has {} dimensions, key 'stride' {}",
                              wrapper.shape.size(), wrapper.stride.size()));
  }
  wrapper.storage_offset =
      reader.natural(reader.field("storage_offset", kind::integer), "key 'storage_offset'");
  wrapper.device_uuid = reader.field("device_uuid", kind::text).text;
  if (!reader.wrong() && !is_uuid(wrapper.device_uuid)) {
    reader.reject(fmt::format("key 'device_uuid' is {}, expected a UUID of 36 characters",
                              printable(wrapper.device_uuid)));
  }
  if (reader.wrong()) return refuse_wrapper(fmt::format("CUDA wrapper: {}", *reader.wrong()));
  return wrapper;
}

}  // namespace

result<memory_wrapper> decode_wrapper(std::span<const std::byte> bytes) {
  if (bytes.size() > limits::wrapper_bytes_max) {
    return refuse_wrapper(fmt::format("wrapper of {} bytes, at most {} are read", bytes.size(),
                                      limits::wrapper_bytes_max));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(host_magic)) return decode_host(text);
  if (!text.empty() && static_cast<unsigned char>(text[0]) == pickle_first_byte) {
    return decode_pickle(bytes);
  }
  return refuse_wrapper(
      fmt::format("wrapper of {} bytes begins with {}: neither a host wrapper (KVDHOST1) "
                  "nor a pickle (\\x80)",
                  bytes.size(), printable(text.substr(0, host_magic.size()))));
}

std::vector<std::byte> encode_host_wrapper(const host_wrapper& wrapper) {
  std::vector<std::byte> bytes(host_header_bytes + wrapper.name.size());
  const auto name_bytes = static_cast<std::uint32_t>(wrapper.name.size());
  std::memcpy(bytes.data(), host_magic.data(), host_magic.size());
  std::memcpy(bytes.data() + 8, &wrapper.offset, sizeof wrapper.offset);
  std::memcpy(bytes.data() + 16, &wrapper.size, sizeof wrapper.size);
  std::memcpy(bytes.data() + 24, &name_bytes, sizeof name_bytes);
  std::memcpy(bytes.data() + host_header_bytes, wrapper.name.data(), wrapper.name.size());
  return bytes;
}

}  // namespace kvd
