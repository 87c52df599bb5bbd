#pragma once
// All that pickle_reader accepts: opcodes and globals. Everything else is refused.

#include <array>
#include <cstdint>
#include <string_view>

namespace kvd {

enum class pickle_op : std::uint8_t {
  mark = '(',
  stop = '.',
  binint = 'J',
  binint1 = 'K',
  binint2 = 'M',
  none = 'N',
  reduce = 'R',
  binunicode = 'X',
  binbytes = 'B',
  short_binbytes = 'C',
  global = 'c',
  binget = 'h',
  long_binget = 'j',
  build = 'b',
  binput = 'q',
  long_binput = 'r',
  setitem = 's',
  tuple = 't',
  setitems = 'u',
  empty_dict = '}',
  empty_tuple = ')',
  proto = 0x80,
  newobj = 0x81,
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  newtrue = 0x88,
  newfalse = 0x89,
  long1 = 0x8a,
  short_binunicode = 0x8c,
  binunicode8 = 0x8d,
  binbytes8 = 0x8e,
  stack_global = 0x93,
  memoize = 0x94,
  frame = 0x95,
};

namespace pickle_globals {

inline constexpr std::string_view wrapper_class = "pegaflow.ipc_wrapper.CudaIPCWrapper";
inline constexpr std::string_view size_class = "torch.Size";
inline constexpr std::string_view encode_function = "_codecs.encode";

// Protocol 2 has no bytes and spells them as calls: b"" is bytes(), anything else is
// _codecs.encode(text, "latin1").
inline constexpr std::array all = {
    wrapper_class,
    size_class,
    encode_function,
    std::string_view("__builtin__.bytes"),
    std::string_view("builtins.bytes"),
    // Every element type that a KV cache has been seen to use.
    std::string_view("torch.bfloat16"),
    std::string_view("torch.float16"),
    std::string_view("torch.float32"),
    std::string_view("torch.float64"),
    std::string_view("torch.float8_e4m3fn"),
    std::string_view("torch.float8_e4m3fnuz"),
    std::string_view("torch.float8_e5m2"),
    std::string_view("torch.float8_e5m2fnuz"),
    std::string_view("torch.float8_e8m0fnu"),
    std::string_view("torch.float4_e2m1fn_x2"),
    std::string_view("torch.uint8"),
    std::string_view("torch.uint16"),
    std::string_view("torch.uint32"),
    std::string_view("torch.uint64"),
    std::string_view("torch.int8"),
    std::string_view("torch.int16"),
    std::string_view("torch.int32"),
    std::string_view("torch.int64"),
    std::string_view("torch.bool"),
};

}  // namespace pickle_globals

}  // namespace kvd
