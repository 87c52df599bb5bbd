// LINK: kvd_grpc
// Every request message of MetaServer and Directory, against a small directory without sockets.
//
// An input is a script of requests from any node. Half of them are raw bytes of a message; the
// other half are built from short lists, so that nodes and hashes meet. Afterwards the books must
// balance: what the nodes hold is what the table holds, and forgetting all of them leaves nothing.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <google/protobuf/stubs/logging.h>

#include "metaserver.pb.h"
#include "peer.pb.h"

#include "memory/directory_digest.hpp"
#include "memory/directory_store.hpp"
#include "tests/fuzz/byte_reader.hpp"

using namespace kvd;
using kvd::fuzz::byte_reader;

namespace {

constexpr std::size_t requests_max = 64;
constexpr std::uint64_t owners_max = 48;  // so that it gets full

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

std::string short_name(byte_reader& from) {
  static const char* const names[] = {"a:1", "b:1", "[::1]:1", ""};
  return names[from.byte() % std::size(names)];
}

std::string short_id(byte_reader& from) {
  static const char* const ids[] = {"67e55044-10b1-426f-9247-bb680e5fe0c8",
                                    "67e5504410b1426f9247bb680e5fe0c9", "no-uuid"};
  return ids[from.byte() % std::size(ids)];
}

template<class Repeated>
void fill_hashes(byte_reader& from, Repeated& into) {
  for (auto left = from.byte() % 24; left > 0; --left)
    into.Add()->assign(1, static_cast<char>(from.byte() % 32));
}

block_hashes as_hashes(const google::protobuf::RepeatedPtrField<std::string>& from) {
  return {from.data(), static_cast<std::size_t>(from.size())};
}

// Raw bytes on even turns, else only the message's node, if it has one.
template<class Message>
bool raw(byte_reader& from, Message& into) {
  if (from.byte() % 2 != 0) return false;
  const auto bytes = from.bytes(from.byte());
  into.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  return true;
}

template<class Message>
void set_session(byte_reader& from, Message& into) {
  into.set_node(short_name(from));
  into.set_node_id(short_id(from));
}

class script {
public:
  void step(byte_reader& from) {
    switch (from.byte() % 10) {
    case 0: return heartbeat(from);
    case 1: return unregister(from);
    case 2: return insert(from);
    case 3: return remove(from);
    case 4: return query(from);
    case 5: return locate(from);
    case 6: return compare(from);
    case 7: return replace(from);
    case 8: time_.advance(std::chrono::seconds(from.byte() * 40)); return;
    default:
      if (from.byte() % 2 == 0) store_.begin_sweep();
      store_.upkeep();
    }
  }

  void check() {
    run_upkeep();
    std::uint64_t owners = 0;
    for (const auto& each : store_.nodes())
      owners += each.owners;
    const auto usage = store_.usage();
    if (usage.owners != owners) broken("nodes and table count different owners");
    if (usage.owners > owners_max) broken("more owners than the limit");
    if (usage.keys > usage.owners) broken("more keys than owners");
    time_.advance(std::chrono::hours(24));
    if (!store_.purge_stale()) broken("purging failed");
    run_upkeep();
    if (store_.usage().owners != 0) broken("owners are left without nodes");
    if (store_.usage().keys != 0) broken("keys are left without owners");
    if (!store_.nodes().empty()) broken("nodes are left after the purge");
  }

private:
  void run_upkeep() {
    while (store_.upkeep()) {
    }
  }
  void heartbeat(byte_reader& from) {
    pegaflow::HeartbeatNodeRequest m;
    if (!raw(from, m)) set_session(from, m);
    static_cast<void>(store_.heartbeat({m.node(), m.node_id()}));
  }
  void unregister(byte_reader& from) {
    pegaflow::UnregisterNodeRequest m;
    if (!raw(from, m)) set_session(from, m);
    static_cast<void>(store_.unregister({m.node(), m.node_id()}));
  }
  void insert(byte_reader& from) {
    pegaflow::InsertBlockHashesRequest m;
    if (!raw(from, m)) {
      set_session(from, m);
      fill_hashes(from, *m.mutable_block_hashes());
    }
    const auto done =
        store_.insert({m.node(), m.node_id()}, m.namespace_(), as_hashes(m.block_hashes()));
    if (!done || m.block_hashes().empty()) return;
    const auto found = store_.query_prefix(m.namespace_(), as_hashes(m.block_hashes()));
    bool whole = false;
    for (const auto& each : *found) {
      whole = whole || (each.node == m.node() &&
                        each.length == static_cast<std::uint32_t>(m.block_hashes_size()));
    }
    if (!whole) broken("an insert is not found by the query after it");
  }
  void remove(byte_reader& from) {
    pegaflow::RemoveBlockHashesRequest m;
    if (!raw(from, m)) {
      set_session(from, m);
      fill_hashes(from, *m.mutable_block_hashes());
    }
    static_cast<void>(
        store_.remove({m.node(), m.node_id()}, m.namespace_(), as_hashes(m.block_hashes())));
  }
  void query(byte_reader& from) {
    pegaflow::QueryPrefixBlocksRequest m;
    if (!raw(from, m)) fill_hashes(from, *m.mutable_block_hashes());
    static_cast<void>(store_.query_prefix(m.namespace_(), as_hashes(m.block_hashes())));
  }
  void locate(byte_reader& from) {
    LocateRequest m;
    if (!raw(from, m)) {
      m.set_except_node(short_name(from));
      m.set_over_gaps(from.byte() % 2 == 0);
      fill_hashes(from, *m.mutable_block_hashes());
    }
    const auto found =
        store_.locate(m.namespace_(), as_hashes(m.block_hashes()), m.except_node(), m.over_gaps());
    if (!found) return;
    std::uint64_t after = 0;
    for (const auto& run : found->runs) {
      if (run.first < after || run.count == 0) broken("runs overlap or are empty");
      after = std::uint64_t{run.first} + run.count;
      for (const auto each : run.owners)
        if (each >= found->nodes.size()) broken("an owner without a name");
    }
    if (after > static_cast<std::uint64_t>(m.block_hashes_size())) broken("a run beyond the end");
  }
  void compare(byte_reader& from) {
    CompareRequest m;
    if (!raw(from, m)) {
      set_session(from, m);
      m.mutable_digests()->Resize(directory_digest::bucket_count, 0);
    }
    static_cast<void>(store_.compare(
        {m.node(), m.node_id()}, {m.digests().data(), static_cast<std::size_t>(m.digests_size())}));
  }
  void replace(byte_reader& from) {
    ReplaceRequest m;
    if (!raw(from, m)) {
      set_session(from, m);
      for (std::uint32_t i = 0; i < directory_digest::bucket_count; ++i)
        m.add_buckets(i);
      fill_hashes(from, *m.add_blocks()->mutable_block_hashes());
    }
    std::vector<namespace_blocks> blocks;
    for (const auto& each : m.blocks())
      blocks.push_back({each.namespace_(), as_hashes(each.block_hashes())});
    static_cast<void>(
        store_.replace({m.node(), m.node_id()},
                       {m.buckets().data(), static_cast<std::size_t>(m.buckets_size())}, blocks));
  }

  fake_clock time_;
  directory_store store_{{.owners_max = owners_max, .id = "d"}, time_};
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  byte_reader from(bytes, size);
  script run;
  for (std::size_t i = 0; i < requests_max && !from.empty(); ++i)
    run.step(from);
  run.check();
  return 0;
}
