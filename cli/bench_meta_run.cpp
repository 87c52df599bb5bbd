#include "cli/bench_meta_run.hpp"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/bench_meta_client.hpp"

namespace kvd {

std::size_t meta_node_count(const meta_plan& plan) noexcept {
  return static_cast<std::size_t>((plan.blocks + plan.node_blocks - 1) / plan.node_blocks);
}

namespace {

// Requests that clients choose from; enough that no cache holds all they touch.
constexpr std::uint64_t prepared_queries = 512;
// Batches that are made ready before the clock runs.
constexpr std::uint64_t batches_ahead = 32;
constexpr int heartbeat_ms = 2000;

// Resident memory of a process; 0 when it cannot be read.
std::uint64_t resident_bytes(long pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  if (pid == 0 || !(file >> all >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::vector<bench_node> nodes_of(const meta_plan& plan) {
  std::vector<bench_node> out;
  for (std::size_t i = 0; i < meta_node_count(plan); ++i) {
    out.push_back(
        {fmt::format("10.1.0.{}:50055", i), fmt::format("67e55044-10b1-426f-9247-{:012x}", i)});
  }
  return out;
}

// Keeps all nodes fresh while others work.
class heart {
public:
  heart(const std::string& address, std::vector<bench_node> nodes)
      : client_(address), nodes_(std::move(nodes)) {}
  result<void> beat() {
    for (const auto& node : nodes_) {
      if (auto taken = client_.heartbeat(node); !taken) return taken;
    }
    return {};
  }
  void start() {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      for (int waited = 0; !stop.stop_requested(); waited += 50) {
        pause_ms(50);
        if (waited < heartbeat_ms) continue;
        waited = 0;
        static_cast<void>(beat());
      }
    });
  }
  // The node is removed: no more of it.
  void forget_last() {
    thread_ = {};
    nodes_.pop_back();
    start();
  }

private:
  meta_client client_;
  std::vector<bench_node> nodes_;
  std::jthread thread_;
};

result<void> load_node(const meta_plan& plan, const bench_node& node, std::uint64_t number,
                       const clock& time, meta_subject& into) {
  meta_client client(into.address);
  if (auto alive = client.heartbeat(node); !alive) return alive;
  const auto first = number * plan.node_blocks;
  const auto end = std::min(first + plan.node_blocks, plan.blocks);
  for (auto at = first; at < end;) {
    std::vector<meta_client::request> ready;
    const auto begin_at = at;
    while (at < end && ready.size() < batches_ahead) {
      const auto count = std::min(plan.batch, end - at);
      ready.push_back(meta_client::insert_of(node, at, count));
      at += count;
    }
    const auto begin = time.now();
    for (const auto& each : ready) {
      if (auto taken = client.insert(each); !taken) return taken;
    }
    into.insert_seconds += seconds_between(begin, time.now());
    into.inserted += at - begin_at;
  }
  return {};
}

struct asked_query {
  meta_client::request request;
  std::uint32_t expected;
};

// Prefixes of all nodes but the last, which is the one to be removed.
std::vector<asked_query> prepare_queries(const meta_plan& plan) {
  std::vector<asked_query> out;
  const auto count = std::min(plan.hashes, plan.node_blocks);
  const auto nodes = std::max<std::uint64_t>(1, plan.blocks / plan.node_blocks - 1);
  for (std::uint64_t i = 0; i < prepared_queries; ++i) {
    const auto node = i % nodes;
    const auto offset = spread(i) % (plan.node_blocks - count + 1);
    out.push_back({meta_client::query_of(node * plan.node_blocks + offset, count),
                   static_cast<std::uint32_t>(count)});
  }
  return out;
}

using client_list = std::vector<std::unique_ptr<meta_client>>;

client_list connect(const std::string& address, std::size_t count) {
  client_list out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(std::make_unique<meta_client>(address));
  return out;
}

// All clients ask without pause until `until` says stop.
result<void> ask(client_list& clients, const std::vector<asked_query>& queries, const clock& time,
                 const std::function<bool(double)>& go_on, query_row& into) {
  std::vector<samples> found(clients.size());
  const auto begin = time.now();
  const auto took = time_parallel(time, clients.size(), [&](std::size_t number) -> result<void> {
    for (std::uint64_t turn = 0; go_on(seconds_between(begin, time.now())); ++turn) {
      const auto& asked = queries[spread(number * 1'000'003 + turn) % queries.size()];
      const auto from = time.now();
      const auto length = clients[number]->query(asked.request);
      found[number].add(1e3 * seconds_between(from, time.now()));
      if (!length) return tl::unexpected(length.error());
      if (*length != asked.expected) {
        return fail(errc::internal,
                    fmt::format("a query found a prefix of {} where a node holds {}", *length,
                                asked.expected));
      }
    }
    return {};
  });
  if (!took) return tl::unexpected(took.error());
  into.clients = clients.size();
  into.seconds += *took;
  for (const auto& each : found) {
    into.queries += each.size();
    into.ms.add(each);
  }
  return {};
}

result<void> query_rounds(const meta_plan& plan, const std::vector<asked_query>& queries,
                          const clock& time, std::vector<meta_subject>& subjects) {
  progress bar("queries", plan.clients.size() * plan.rounds * subjects.size(), time, plan.quiet);
  for (const auto count : plan.clients) {
    for (auto& subject : subjects)
      subject.rows.emplace_back().clients = count;
    for (std::uint64_t round = 0; round < plan.rounds; ++round) {
      for (auto& subject : subjects) {
        auto clients = connect(subject.address, count);
        const auto for_a_while = [&plan](double seconds) { return seconds < plan.seconds; };
        // Connections open and buffers grow before the measured time.
        query_row warm_up;
        if (auto done = ask(
                clients, queries, time, [](double s) { return s < 0.2; }, warm_up);
            !done) {
          return done;
        }
        if (auto done = ask(clients, queries, time, for_a_while, subject.rows.back()); !done) {
          return done;
        }
        bar.advance(1);
      }
    }
  }
  return {};
}

// Removes the last node while clients ask for blocks of the others.
result<void> remove_node(const meta_plan& plan, const bench_node& node,
                         const std::vector<asked_query>& queries, const clock& time,
                         meta_subject& subject) {
  auto clients = connect(subject.address, plan.removal_clients);
  query_row warm_up;
  if (auto done = ask(
          clients, queries, time, [](double s) { return s < 0.2; }, warm_up);
      !done) {
    return done;
  }
  std::atomic<bool> removed{false};
  result<std::uint64_t> owners = 0;
  std::jthread remover([&] {
    meta_client client(subject.address);
    const auto begin = time.now();
    owners = client.unregister(node);
    subject.unregister_ms = 1e3 * seconds_between(begin, time.now());
    removed = true;
  });
  // At least the whole call, and as long as a removal in the background may take.
  const auto go_on = [&](double seconds) { return !removed || seconds < plan.seconds; };
  auto asked = ask(clients, queries, time, go_on, subject.removal);
  remover.join();
  if (!asked) return asked;
  if (!owners) return tl::unexpected(owners.error());
  subject.removed = *owners;
  return {};
}

}  // namespace

result<void> measure_metaservers(const meta_plan& plan, const clock& time,
                                 std::vector<meta_subject>& subjects) {
  const auto nodes = nodes_of(plan);
  std::vector<std::unique_ptr<heart>> hearts;
  for (auto& subject : subjects) {
    hearts.push_back(std::make_unique<heart>(subject.address, nodes));
    if (auto alive = hearts.back()->beat(); !alive) return alive;
    hearts.back()->start();
    subject.bytes_before = resident_bytes(subject.pid);
  }
  {
    progress bar("nodes", nodes.size() * subjects.size(), time, plan.quiet);
    for (std::uint64_t i = 0; i < nodes.size(); ++i) {
      for (auto& subject : subjects) {
        if (auto done = load_node(plan, nodes[i], i, time, subject); !done) return done;
        bar.advance(1);
      }
    }
  }
  for (auto& subject : subjects)
    subject.bytes_after = resident_bytes(subject.pid);
  const auto queries = prepare_queries(plan);
  if (auto done = query_rounds(plan, queries, time, subjects); !done) return done;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    hearts[i]->forget_last();
    if (auto done = remove_node(plan, nodes.back(), queries, time, subjects[i]); !done) return done;
  }
  return {};
}

}  // namespace kvd
