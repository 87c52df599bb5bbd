#include "transport/device/wrapper.hpp"

#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "core/random.hpp"
#include "tests/transport/device/pickle_samples.hpp"

using namespace kvd;
using namespace kvd::test;

namespace {

using bytes = std::vector<std::byte>;

std::string refusal(const bytes& wrapper) {
  const auto decoded = decode_wrapper(wrapper);
  REQUIRE_FALSE(decoded.has_value());
  CHECK(decoded.error().code == errc::invalid_argument);
  return decoded.error().detail;
}

void check_refused(const bytes& wrapper, std::string_view part) {
  const auto detail = refusal(wrapper);
  CHECK_MESSAGE(detail.find(part) != std::string::npos, detail, " lacks ", std::string(part));
}

cuda_wrapper decoded_cuda(std::string_view hex) {
  const auto decoded = decode_wrapper(from_hex(hex));
  REQUIRE_MESSAGE(decoded.has_value(), decoded.error().detail);
  return std::get<cuda_wrapper>(*decoded);
}

bytes sample_handle() {
  bytes handle;
  for (unsigned i = 0; i < 64; ++i) {
    handle.push_back(static_cast<std::byte>((i * 7 + 200) % 256));
  }
  return handle;
}

// Pickle text by hand: strings and numbers, each in its shortest form.
struct pickle_text {
  std::string text = "\x80\x04";
  pickle_text& raw(std::string_view more) {
    text += more;
    return *this;
  }
  pickle_text& str(std::string_view value) {
    return raw("\x8c").raw(std::string(1, static_cast<char>(value.size()))).raw(value);
  }
  bytes done() const {
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    return bytes(first, first + text.size());
  }
};

// A complete wrapper; `replace` gives other text for a key's value, "-" leaves the key out.
bytes wrapper_with(std::string_view replaced, std::string_view value) {
  pickle_text p;
  p.str("pegaflow.ipc_wrapper").str("CudaIPCWrapper").raw("\x93)\x81}(");
  const auto field = [&](std::string_view key, const std::string& normal) {
    if (key == replaced && value == "-") return;
    p.str(key).raw(key == replaced ? std::string(value) : normal);
  };
  field("device_uuid", pickle_text{""}.str("a1b2c3d4-0011-2233-4455-66778899aabb").text);
  field("storage_offset", std::string("K\0", 2));
  field("stride", "K\x01\x85");
  field("shape", "\x8c\x05torch\x8c\x04Size\x93K\x09\x85\x85R");
  field("dtype", "\x8c\x05torch\x8c\x05uint8\x93");
  field("handle", "(K\x03"
                  "C\x40" +
                      std::string(64, 'h') +
                      "K\x09K\x01"
                      "C\x01xK\x02"
                      "C\x01y\x89t");
  return p.raw("ub.").done();
}

}  // namespace

TEST_CASE("a host wrapper survives encoding and decoding") {
  const host_wrapper original{"engine_kv.0", 4096, 1 << 30};
  const auto encoded = encode_host_wrapper(original);
  CHECK(encoded.size() == 28 + original.name.size());
  const auto decoded = decode_wrapper(encoded);
  REQUIRE(decoded.has_value());
  const auto& host = std::get<host_wrapper>(*decoded);
  CHECK(host.name == original.name);
  CHECK(host.offset == original.offset);
  CHECK(host.size == original.size);
}

TEST_CASE("a host wrapper's name loses its leading slash") {
  const auto decoded = decode_wrapper(encode_host_wrapper({"/kv", 0, 1}));
  REQUIRE(decoded.has_value());
  CHECK(std::get<host_wrapper>(*decoded).name == "kv");
}

TEST_CASE("a host wrapper that does not fit is refused with what is wrong") {
  check_refused({}, "wrapper of 0 bytes");
  auto good = encode_host_wrapper({"kv", 0, 1});
  for (std::size_t size = 1; size < good.size(); ++size) {
    refusal(bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  auto longer = good;
  longer.push_back(std::byte{'x'});
  check_refused(longer, "the name has 2 bytes by the count at byte 24, 3 follow");
  check_refused(encode_host_wrapper({"kv", 0, 0}), "size at byte 16 is 0");
  check_refused(encode_host_wrapper({"kv", ~std::uint64_t{0}, 1}), "beyond 64 bits");
  check_refused(encode_host_wrapper({"", 0, 1}), "is empty");
  check_refused(encode_host_wrapper({"../etc/passwd", 0, 1}), "has a slash");
  check_refused(encode_host_wrapper({std::string(300, 'n'), 0, 1}), "has 300 bytes, at most 255");
  check_refused(bytes(limits::wrapper_bytes_max + 1), "65537 bytes, at most 65536");
  check_refused(bytes(8, std::byte{'Z'}), "begins with 'ZZZZZZZZ'");
}

TEST_CASE("the pickles of every protocol from 2 to 5 say the same") {
  for (const auto hex :
       {pickle_protocol_2, pickle_protocol_3, pickle_protocol_4, pickle_protocol_5}) {
    const auto wrapper = decoded_cuda(hex);
    CHECK(wrapper.kind == cuda_wrapper::handle_kind::cuda_malloc);
    CHECK(wrapper.handle == sample_handle());
    CHECK(wrapper.client_device == 3);
    CHECK(wrapper.storage_bytes == 5368709120);
    CHECK(wrapper.base_offset_bytes == 0x1000000);
    CHECK(wrapper.dtype == "bfloat16");
    CHECK(wrapper.shape == std::vector<std::int64_t>{2, 1000, 16, 8, 128});
    CHECK(wrapper.stride == std::vector<std::int64_t>{16384000, 16384, 1024, 128, 1});
    CHECK(wrapper.storage_offset == 0);
    CHECK(wrapper.device_uuid == "a1b2c3d4-0011-2233-4455-66778899aabb");
  }
}

TEST_CASE("a bare handle of older torch and expandable segments are understood") {
  const auto bare = decoded_cuda(pickle_bare_handle);
  CHECK(bare.kind == cuda_wrapper::handle_kind::cuda_malloc);
  CHECK(bare.handle == sample_handle());
  const auto expandable = decoded_cuda(pickle_expandable);
  CHECK(expandable.kind == cuda_wrapper::handle_kind::expandable);
  CHECK(expandable.handle.size() == 24 + 3 * 4);
  CHECK(expandable.handle[0] == std::byte{0x92});  // the process, 4242 = 0x1092
}

TEST_CASE("a pickle that would run a command is refused by the name of what it calls") {
  check_refused(from_hex(pickle_of_a_command), "global 'posix.system' is not allowed (at byte 28)");
  check_refused(from_hex(pickle_of_a_command_2),
                "global 'posix.system' is not allowed (at byte 2)");
}

TEST_CASE("an opcode outside of the list is refused with its place") {
  check_refused(from_hex(pickle_of_a_list), "opcode 0x5d is not allowed (at byte 11)");
  for (const char code :
       {'i', 'o', 'P', 'Q', '\x82', '\x83', '\x84', '\x92', '\x97', 'e', 'a', ']', '0',
        '1', '2', 'I', 'L', 'F',    'G',    'S',    'U',    'T',    'V', 'p', 'g', '\xff'}) {
    check_refused(
        pickle_text{}.raw(std::string(1, code)).done(),
        fmt::format("opcode {:#04x} is not allowed (at byte 2)", static_cast<unsigned char>(code)));
  }
}

TEST_CASE("keys may come in any order") {
  const auto decoded = decode_wrapper(wrapper_with("", ""));
  REQUIRE_MESSAGE(decoded.has_value(), decoded.error().detail);
  const auto& wrapper = std::get<cuda_wrapper>(*decoded);
  CHECK(wrapper.storage_bytes == 9);
  CHECK(wrapper.dtype == "uint8");
}

TEST_CASE("a key that is missing, doubled or of another type is named") {
  for (const auto key : {"handle", "dtype", "shape", "stride", "storage_offset", "device_uuid"}) {
    check_refused(wrapper_with(key, "-"), fmt::format("key '{}' is missing", key));
    check_refused(wrapper_with(key, "N"), fmt::format("{} is a None", key));
  }
  check_refused(wrapper_with("dtype", "N\x8c\x05"
                                      "dtypeN"),
                "key 'dtype' is there twice");
  check_refused(wrapper_with("handle", "K\x01\x85"), "'handle' has 1 items, expected 8");
  check_refused(wrapper_with("dtype", "\x8c\x05torch\x8c\x04Size\x93"), "expected an element type");
  check_refused(wrapper_with("stride", "K\x01K\x01\x86"),
                "'shape' has 1 dimensions, key 'stride' 2");
  check_refused(wrapper_with("stride", "J\xff\xff\xff\xff\x85"), "'stride' is -1, expected 0");
  check_refused(wrapper_with("stride", "\x88\x85"), "'stride' is a bool, expected int");
  check_refused(wrapper_with("storage_offset", "\x8a\x01\x80"), "is -128, expected 0 or more");
  check_refused(wrapper_with("device_uuid", "\x8c\x03"
                                            "GPU"),
                "is 'GPU', expected a UUID");
  check_refused(wrapper_with("device_uuid", "C\x03"
                                            "GPU"),
                "is a bytes, expected str");
  check_refused(wrapper_with("shape", "(" + std::string(34, 'N') + "t"), "has 34 dimensions");
}

TEST_CASE("a handle that no torch makes is refused") {
  const auto with_handle = [](const std::string& handle) {
    return wrapper_with("handle", "(K\x03"
                                  "C" +
                                      std::string(1, static_cast<char>(handle.size())) + handle +
                                      "K\x09K\x01"
                                      "C\x01xK\x02"
                                      "C\x01y\x89t");
  };
  check_refused(with_handle(""), "memory handle of 0 bytes");
  check_refused(with_handle(std::string(63, 'h')), "memory handle of 63 bytes");
  check_refused(with_handle("\x02"
                            "c" +
                            std::string(63, 'h')),
                "of kind 'c' with 65 bytes");
  check_refused(with_handle("\x02"
                            "f" +
                            std::string(64, 'h')),
                "of kind 'f' with 66 bytes");
  check_refused(with_handle("\x02"
                            "e" +
                            std::string(24, '\1')),
                "does not hold 72340172838076673");
  check_refused(with_handle("\x02"
                            "e" +
                            std::string(23, '\0')),
                "of kind 'e' with 25 bytes");
}

TEST_CASE("a pickle without sense is refused, not followed") {
  const auto check = [](std::string_view program, std::string_view part) {
    check_refused(pickle_text{}.raw(program).done(), part);
  };
  using std::string_view_literals::operator""sv;
  check("", "1 bytes are missing from byte 2 on");
  check(".", "0 values are left at the end");
  check("NN.", "2 values are left at the end");
  check("(N.", "1 values are left at the end");
  check("N.N", "1 bytes follow the end");
  check("N.", "the pickle holds a None");
  check("u", "no mark to go back to");
  check("t", "no mark to go back to");
  check("\x94", "1 values are needed, 0 are there");
  check("N(\x85", "1 values are needed, 0 are there");
  check("h\x05", "memo entry 5 was never written");
  check("j\xff\xff\xff\xff", "memo entry 4294967295 was never written");
  check("Nr\xff\xff\xff\xff", "memo entry 4294967295, at most 1024");
  check("N(NNu", "items are set on a None");
  check("}(Nu", "a dict key without a value");
  check("NR", "2 values are needed, 1 are there");
  check("NNR", "a None is called with a None");
  check("NNb", "a None gets a None as its state");
  check("N)\x81", "an object of '' is not allowed");
  check("\x8c\x05torch\x8c\x04Size\x93)\x81", "an object of 'torch.Size' is not allowed");
  check("\x8c\x05torch\x8c\x05uint8\x93)R", "'torch.uint8' is called in a way");
  check("\x8c\x05torchN\x93", "a global whose name is not text");
  check("ctorch\nload\n", "global 'torch.load' is not allowed");
  check("ctorch", "a line without an end");
  check("B\xff\xff\xff\xff", "4294967295 bytes are missing");
  check("\x8e\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615 bytes are missing");
  check("\x8a\x09", "an integer of 9 bytes");
  check("\x95\xff\0\0\0\0\0\0\0N."sv, "a frame of 255 bytes, 2 are left");
  check("\x95\1\0\0\0\0\0\0\0M\1\1."sv, "bytes are missing from byte 12 on");
  check("\x95\x0b\0\0\0\0\0\0\0\x95\1\0\0\0\0\0\0\0NN."sv, "a frame inside a frame");
  check_refused({std::byte{0x80}, std::byte{1}, std::byte{'N'}, std::byte{'.'}}, "protocol 1");
  check_refused({std::byte{0x80}, std::byte{6}, std::byte{'N'}, std::byte{'.'}}, "protocol 6");
}

TEST_CASE("integers of every width keep their sign") {
  using std::string_view_literals::operator""sv;
  const auto offset_of = [](std::string_view value) {
    const auto decoded = decode_wrapper(wrapper_with("storage_offset", value));
    REQUIRE_MESSAGE(decoded.has_value(), decoded.error().detail);
    return std::get<cuda_wrapper>(*decoded).storage_offset;
  };
  CHECK(offset_of("K\xff") == 255);
  CHECK(offset_of("M\xff\xff") == 65535);
  CHECK(offset_of("J\xff\xff\xff\x7f") == 2147483647);
  CHECK(offset_of("\x8a\0"sv) == 0);
  CHECK(offset_of("\x8a\x05\0\0\0\0\x01"sv) == 4294967296);
  CHECK(offset_of("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f") == 9223372036854775807);
  check_refused(wrapper_with("storage_offset", "\x8a\x05\0\0\0\0\x80"sv), "is -549755813888");
}

TEST_CASE("a pickle cannot make the decoder work or grow without bound") {
  std::string program;
  for (int i = 0; i < 2000; ++i) {
    program += 'N';
  }
  check_refused(pickle_text{}.raw(program).done(), "more than 1024 values");
  check_refused(pickle_text{}.raw(std::string(20, '(')).done(), "more than 16 marks");
  // One large text, encoded through the memo again and again.
  pickle_text bomb;
  bomb.raw("c_codecs\nencode\n\x94X").raw(std::string("\x00\x80\x00\x00", 4));
  bomb.raw(std::string(32768, 'x')).raw("\x94\x8c\x06latin1\x94");
  for (int i = 0; i < 4; ++i) {
    bomb.raw(std::string("h\0h\1h\2\x86R", 8));
  }
  check_refused(bomb.done(), "more than 65536 encoded bytes");
  // A dict that holds itself is read and refused like any other.
  check_refused(pickle_text{}.raw(std::string("}\x94(h\0h\0u.", 9)).done(), "holds a dict");
}

TEST_CASE("every truncation and every changed byte of a real pickle is answered") {
  for (const auto hex : {pickle_protocol_2, pickle_protocol_4, pickle_expandable}) {
    const auto whole = from_hex(hex);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      refusal(bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    }
    seeded_random random(11);
    for (int round = 0; round < 2000; ++round) {
      auto changed = whole;
      for (std::uint64_t i = 0; i <= random.below(3); ++i) {
        changed[random.below(changed.size())] = static_cast<std::byte>(random.below(256));
      }
      const auto decoded = decode_wrapper(changed);
      if (!decoded && decoded.error().detail.empty()) FAIL("a refusal without a reason");
    }
  }
}
