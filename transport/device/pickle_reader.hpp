#pragma once
// Reads the few pickles that PegaFlow's wrapper class makes; executes nothing.
//
// Python's pickle is a program for a stack machine. This machine knows the opcodes that protocols 2
// to 5 use for numbers, strings, bytes, tuples, dicts, one class with a state dict, and a list of
// known globals. Any other opcode or global is refused, named with its byte offset. Nothing is
// looked up or called: a global is a name, and the three calls that occur (torch.Size of a tuple,
// _codecs.encode of a latin1 string, bytes of nothing) are built in.
//
// Bounds: every item costs at least a byte of input, the memo and the number of items have a limit,
// and what _codecs.encode produces is counted, so that memory is linear in the input. Values are
// indices into one array and are never walked recursively here.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace kvd {

struct pickle_value {
  enum class kind : std::uint8_t {
    none,
    boolean,
    integer,
    text,
    bytes,
    tuple,
    dict,
    global,
    object
  };
  kind type = kind::none;
  std::int64_t number = 0;           // integer; boolean as 0 or 1; object: its class's index
  std::string text;                  // text, bytes; global as module.name
  std::vector<std::uint32_t> items;  // tuple: items; dict: key, value, key, value
  std::uint32_t state = 0;           // object: index of its state, 0 when it has none
};

struct pickle_tree {
  std::vector<pickle_value> values;  // values[0] is a placeholder, so that 0 can mean "none"
  std::uint32_t root = 0;
  const pickle_value& at(std::uint32_t index) const { return values[index]; }
};

// "tuple", "str": what Python would call it.
std::string_view name(pickle_value::kind kind) noexcept;

// errc::invalid_argument names the opcode or global and the byte where it stands.
result<pickle_tree> read_pickle(std::span<const std::byte> bytes);

}  // namespace kvd
