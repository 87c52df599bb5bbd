// LINK: kvd_device
// Wrapper bytes from any client: decoding answers, and what it accepts as ours is encoded back.
//
// The seeds are pickles, hence not text: corpus/wrapper holds an index in decimal, and the mutator
// replaces such an input by the sample of that number before it mutates it.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tests/transport/device/pickle_samples.hpp"
#include "transport/device/wrapper.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* input, std::size_t size, std::size_t max);

namespace {

std::vector<std::byte> sample(std::size_t index) {
  using namespace kvd;
  switch (index % 8) {
  case 0: return encode_host_wrapper({"engine_kv", 4096, 1 << 20});
  case 1: return test::from_hex(test::pickle_protocol_2);
  case 2: return test::from_hex(test::pickle_protocol_3);
  case 3: return test::from_hex(test::pickle_protocol_4);
  case 4: return test::from_hex(test::pickle_protocol_5);
  case 5: return test::from_hex(test::pickle_bare_handle);
  case 6: return test::from_hex(test::pickle_expandable);
  default: return test::from_hex(test::pickle_of_a_command_2);
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* input, std::size_t size,
                                               std::size_t max, unsigned seed) {
  // A short input is an index of a sample, or nothing worth keeping.
  if (size < 4 || seed % 64 == 0) {
    const auto bytes = sample(size > 0 && size < 4 ? input[0] : seed / 64);
    size = std::min(bytes.size(), max);
    std::copy_n(bytes.begin(), size, reinterpret_cast<std::byte*>(input));
    if (seed % 2 == 0) return size;
  }
  return LLVMFuzzerMutate(input, size, max);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace kvd;
  const auto decoded = decode_wrapper(std::as_bytes(std::span(input, size)));
  if (!decoded) {
    // A refusal says why.
    if (decoded.error().detail.empty()) std::abort();
    return 0;
  }
  if (const auto* host = std::get_if<host_wrapper>(&*decoded)) {
    const auto again = decode_wrapper(encode_host_wrapper(*host));
    if (!again || std::get<host_wrapper>(*again).name != host->name) std::abort();
  } else {
    const auto& cuda = std::get<cuda_wrapper>(*decoded);
    if (cuda.shape.size() != cuda.stride.size() || cuda.device_uuid.size() != 36) std::abort();
  }
  return 0;
}
