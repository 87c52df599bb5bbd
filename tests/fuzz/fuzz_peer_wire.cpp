// LINK: kvd_peer
// What peers say to each other over a stream, as anything: decoders stay within the input, and what
// they take keeps the bounds that the holder relies on.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "transport/peer/stream_wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvd::stream_wire;
  const std::string in(reinterpret_cast<const char*>(data), size);
  request out{};
  std::vector<run> runs;
  std::string_view left = in;
  while (take_request(left, out, runs) == decoded::whole) {
    if (runs.empty() || runs.size() > runs_max || out.bytes > request_payload_max) abort();
    if (out.frame > left.size() || out.frame < request_bytes + run_bytes) abort();
    std::uint64_t bytes = 0;
    for (const auto& run : runs)
      bytes += run.bytes;
    if (bytes != out.bytes) abort();
    left.remove_prefix(out.frame);
  }
  const std::string key(kvd::peer_key_bytes, 'k');
  const std::string boot(kvd::boot_id_bytes, 'b');
  if (in.size() >= greeting_bytes) {
    const auto how = check_greeting({in.data(), greeting_bytes}, key, boot);
    std::string right;
    put_greeting(right, key, boot);
    if ((how == status::ok) != in.starts_with(right)) abort();
  }
  if (in.size() >= greeting_answer_bytes) (void)take_greeting_answer(in);
  if (in.size() >= answer_bytes) {
    const auto answer = take_answer(in);
    if (answer && answer->bytes > request_payload_max) abort();
  }
  return 0;
}
