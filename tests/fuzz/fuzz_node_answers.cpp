// LINK: kvd_grpc
// What other nodes and metaservers answer, decoded and read: no answer leads beyond the question.

#include <cstdlib>

#include "tests/fuzz/byte_reader.hpp"
#include "transport/grpc/node_messages.hpp"

using namespace kvd;

namespace {

void check(const located_blocks& found, std::size_t asked) {
  std::uint64_t from = 0;
  for (const auto& run : found.runs) {
    if (run.count == 0 || run.first < from || run.owners.empty()) std::abort();
    from = std::uint64_t{run.first} + run.count;
    if (from > asked) std::abort();
    for (const auto owner : run.owners)
      if (owner >= found.nodes.size()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t asked = data[1];
  const auto* bytes = data + 2;
  const auto count = static_cast<int>(size - 2);
  switch (data[0] % 3) {
  case 0: {
    LocateResponse answer;
    if (answer.ParseFromArray(bytes, count)) check(read_located(answer, asked), asked);
    break;
  }
  case 1: {
    pegaflow::QueryPrefixBlocksResponse answer;
    if (answer.ParseFromArray(bytes, count)) check(read_located(answer, "self:1", asked), asked);
    break;
  }
  default: {
    LockResponse answer;
    if (!answer.ParseFromArray(bytes, count)) break;
    const auto lock = read_lock(std::move(answer), asked);
    if (!lock) break;
    std::uint64_t next = 0;
    for (const auto position : lock->positions) {
      if (position < next || position >= asked) std::abort();
      next = position + std::uint64_t{1};
    }
    if (lock->positions.empty() != lock->units.empty()) std::abort();
    if (!lock->positions.empty() && lock->units.size() % lock->positions.size() != 0) std::abort();
  }
  }
  return 0;
}
