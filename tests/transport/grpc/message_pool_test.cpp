#include <doctest/doctest.h>

#include "engine.pb.h"

#include "transport/grpc/message_pool.hpp"

using pool = kvd::message_pool<pegaflow::QueryRequest, pegaflow::QueryResponse>;

TEST_CASE("a released pair of messages comes back empty, with its strings' capacity") {
  pool messages;
  auto* first = messages.AllocateMessages();
  first->request()->add_block_hashes(std::string(32, 'h'));
  first->response()->mutable_ready()->set_num_hit_blocks(1);
  const auto* text = &first->request()->block_hashes(0);
  first->Release();
  auto* again = messages.AllocateMessages();
  CHECK(again == first);
  CHECK(again->request()->block_hashes_size() == 0);
  CHECK(!again->response()->has_ready());
  CHECK(again->request()->add_block_hashes() == text);
  again->Release();
}

TEST_CASE("a pair in use is never given out twice") {
  pool messages;
  auto* first = messages.AllocateMessages();
  auto* second = messages.AllocateMessages();
  CHECK(first != second);
  first->Release();
  second->Release();
}

TEST_CASE("a pair that grew beyond what is kept is freed") {
  pool messages;
  auto* large = messages.AllocateMessages();
  large->request()->add_block_hashes(std::string(pool::kept_bytes_max + 1, 'h'));
  large->Release();
  auto* next = messages.AllocateMessages();
  CHECK(next->request()->SpaceUsedLong() < pool::kept_bytes_max);
  next->Release();
}
