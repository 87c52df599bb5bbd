#include "cli/bench_rpc.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/bench.hpp"
#include "cli/bench_engine.hpp"
#include "cli/bench_server.hpp"
#include "core/clock.hpp"
#include "core/options.hpp"
#include "core/random.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

constexpr std::string_view rpc_command = "bench rpc";
constexpr std::string_view rpc_purpose =
    "Times prefix queries of many hashes at several hit fractions while engines save in the\n"
    "background, beside the round trip of an empty call (Health) in the same run.";

result<std::string> parse_percent(std::string_view text) {
  const auto value = parse_unsigned(text);
  if (!value) return tl::unexpected(value.error());
  if (*value > 100) return fail(errc::invalid_argument, "a hit fraction is at most 100 percent");
  return std::string(text);
}

const option rpc_options[] = {
    {.name = "hashes",
     .kind = option_kind::count,
     .fallback = "10000",
     .value = "N",
     .group = "What to ask",
     .help = "Hashes of one query.",
     .low = 1,
     .high = 1 << 20},
    {.name = "hits",
     .kind = option_kind::list,
     .fallback = "0,10,50,100",
     .value = "PERCENTS",
     .group = "What to ask",
     .help = "Hit fractions: how much of the prompt is stored.",
     .parse = parse_percent},
    {.name = "queries",
     .kind = option_kind::count,
     .fallback = "1000",
     .value = "N",
     .group = "What to ask",
     .help = "Queries of each hit fraction.",
     .low = 1,
     .high = 10'000'000},
    {.name = "savers",
     .kind = option_kind::count,
     .fallback = "2",
     .value = "N",
     .group = "What else runs",
     .help = "Engines that save without pause meanwhile.",
     .high = 64},
    {.name = "save-block-size",
     .kind = option_kind::size,
     .fallback = "256kb",
     .value = "SIZE",
     .group = "What else runs",
     .help = "Bytes of the blocks that they save.",
     .low = 512,
     .high = 1 << 30},
    {.name = "save-batch",
     .kind = option_kind::count,
     .fallback = "64",
     .value = "N",
     .group = "What else runs",
     .help = "Blocks of one of their Save calls.",
     .low = 1,
     .high = 65536},
    {.name = "address",
     .value = "HOST:PORT",
     .group = "Server",
     .help = "gRPC address of a running server; without it one is started."},
    {.name = "pool-size",
     .kind = option_kind::size,
     .fallback = "1gb",
     .value = "SIZE",
     .group = "Server",
     .help = "Pool of the started server.",
     .low = 1 << 20,
     .high = std::uint64_t{1} << 41},
    {.name = "json",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "One JSON document instead of the table."},
    {.name = "quiet",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "No progress."},
    {.name = "help",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "Print this."},
};

// Queries before the measured ones: buffers grow to their size, the savers find their pace.
constexpr std::size_t warm_up_queries = 100;

// The blocks that are asked for. Small: a query never touches a block's bytes.
constexpr std::uint64_t asked_block_bytes = 4096;

struct rpc_plan {
  std::uint32_t hashes = 1;
  std::vector<std::uint64_t> hit_percents;
  std::size_t queries = 1;
  std::size_t savers = 0;
  std::uint64_t save_block_bytes = 0;
  std::uint32_t save_batch = 1;
  std::string address;
  std::uint64_t pool_bytes = 0;
  bool json = false;
  bool quiet = false;
};

struct rpc_row {
  std::uint64_t hit_percent = 0;
  std::uint64_t hits = 0;
  samples query_ms;
  samples empty_ms;  // Health, in turns with the queries
};

struct rpc_outcome {
  std::vector<rpc_row> rows;
  double save_rate = 0;  // GB/s of all savers together, while queries ran
};

rpc_plan rpc_plan_from(const resolution& given) {
  rpc_plan plan;
  plan.hashes = static_cast<std::uint32_t>(given.get<std::uint64_t>("hashes"));
  for (const auto& text : given.get<std::vector<std::string>>("hits")) {
    plan.hit_percents.push_back(*parse_unsigned(text));
  }
  plan.queries = given.get<std::uint64_t>("queries");
  plan.savers = given.get<std::uint64_t>("savers");
  plan.save_block_bytes = given.get<std::uint64_t>("save-block-size");
  plan.save_batch = static_cast<std::uint32_t>(given.get<std::uint64_t>("save-batch"));
  plan.address = given.get<std::string>("address");
  plan.pool_bytes = given.get<std::uint64_t>("pool-size");
  plan.json = given.get<bool>("json");
  plan.quiet = given.get<bool>("quiet");
  return plan;
}

// Engines that save new blocks until told to stop, each on a thread of its own.
class background_savers {
public:
  explicit background_savers(const clock& time) : time_(time) {}
  ~background_savers() { static_cast<void>(stop()); }
  background_savers(const background_savers&) = delete;
  background_savers& operator=(const background_savers&) = delete;

  result<void> start(const rpc_plan& plan, const std::string& address,
                     const std::string& name_space) {
    system_random random;
    bytes_a_save_ = plan.save_batch * plan.save_block_bytes;
    answers_.resize(plan.savers);
    for (std::size_t i = 0; i < plan.savers; ++i) {
      bench_engine_options options;
      options.address = address;
      options.instance = fmt::format("{}-saver-{}", name_space, i);
      options.name_space = name_space + "-savers";
      options.blocks = plan.save_batch;
      options.block_bytes = plan.save_block_bytes;
      auto engine = bench_engine::start(options, time_, random);
      if (!engine) return tl::unexpected(std::move(engine.error()));
      engines_.push_back(std::move(*engine));
    }
    begin_ = time_.now();
    for (std::size_t i = 0; i < plan.savers; ++i) {
      threads_.emplace_back([this, i, count = plan.save_batch] { answers_[i] = save(i, count); });
    }
    return {};
  }

  // GB/s since the start, or why a saver ended early.
  result<double> stop() {
    stopping_.store(true);
    for (auto& thread : threads_)
      thread.join();
    threads_.clear();
    const auto seconds = seconds_between(begin_, time_.now());
    for (const auto& answer : answers_) {
      if (!answer) return tl::unexpected(answer.error());
    }
    const auto bytes = static_cast<double>(saves_.load()) * static_cast<double>(bytes_a_save_);
    return seconds > 0 ? gigabytes(bytes) / seconds : 0;
  }

private:
  result<void> save(std::size_t saver, std::uint32_t count) {
    std::vector<std::uint32_t> ids(count);
    std::iota(ids.begin(), ids.end(), 0u);
    std::vector<std::string> hashes(count);
    for (std::uint64_t turn = 0; !stopping_.load(); ++turn) {
      for (std::uint32_t i = 0; i < count; ++i) {
        hashes[i] = known_hash((std::uint64_t{saver} << 56) ^ (turn << 24) ^ i);
      }
      if (auto saved = engines_[saver]->save(ids, hashes); !saved) return saved;
      saves_.fetch_add(1);
    }
    return {};
  }

  const clock& time_;
  std::vector<std::unique_ptr<bench_engine>> engines_;
  std::vector<result<void>> answers_;  // of each thread, read after it was joined
  std::uint64_t bytes_a_save_ = 0;
  time_point begin_{};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> saves_{0};
  std::vector<std::thread> threads_;  // last: they use all of the above
};

// Saves the prompt that the queries ask for.
result<void> store_prompt(bench_engine& engine, std::span<const std::string> hashes) {
  constexpr std::size_t batch = 8192;
  std::vector<std::uint32_t> ids(hashes.size());
  std::iota(ids.begin(), ids.end(), 0u);
  for (const auto id : ids)
    engine.fill(id, id);
  for (std::size_t at = 0; at < ids.size(); at += batch) {
    const auto count = std::min(batch, ids.size() - at);
    if (auto saved = engine.save(std::span(ids).subspan(at, count), hashes.subspan(at, count));
        !saved) {
      return saved;
    }
  }
  return {};
}

result<void> time_query(bench_engine& engine, const engine_client::prepared_query& prepared,
                        const clock& time, rpc_row& row) {
  const auto begin = time.now();
  const auto answer = engine.client().query(prepared);
  row.query_ms.add(1e3 * seconds_between(begin, time.now()));
  if (!answer) return tl::unexpected(answer.error());
  if (answer->hits != row.hits) {
    return fail(errc::internal,
                fmt::format("a query found {} blocks where {} are stored", answer->hits, row.hits));
  }
  if (!answer->lease.empty()) {
    if (auto released = engine.client().release(answer->lease); !released) return released;
  }
  const auto empty_begin = time.now();
  if (auto healthy = engine.client().health(); !healthy) return healthy;
  row.empty_ms.add(1e3 * seconds_between(empty_begin, time.now()));
  return {};
}

result<rpc_outcome> measure_queries(const rpc_plan& plan, const std::string& address,
                                    const clock& time) {
  system_random random;
  const auto name_space = fmt::format("bench-rpc-{:016x}", random.next());
  bench_engine_options options;
  options.address = address;
  options.instance = name_space + "-asker";
  options.name_space = name_space;
  options.blocks = plan.hashes;
  options.block_bytes = asked_block_bytes;
  const auto engine = bench_engine::start(options, time, random);
  if (!engine) return tl::unexpected(engine.error());
  std::vector<std::string> stored(plan.hashes);
  for (std::size_t i = 0; i < stored.size(); ++i)
    stored[i] = known_hash(i);
  if (auto saved = store_prompt(**engine, stored); !saved) return tl::unexpected(saved.error());
  // Its lease keeps the prompt from being evicted by what the savers save.
  const auto pin = (*engine)->query(stored);
  if (!pin) return tl::unexpected(pin.error());
  if (pin->hits != plan.hashes) {
    return fail(errc::storage,
                fmt::format("only {} of {} blocks fit the server's pool", pin->hits, plan.hashes));
  }
  background_savers savers(time);
  if (auto started = savers.start(plan, address, name_space); !started) {
    return tl::unexpected(started.error());
  }
  rpc_row warm_up;
  warm_up.hits = stored.size();
  const auto first = engine_client::prepare_query(options.instance, "bench-rpc", stored);
  for (std::size_t i = 0; i < warm_up_queries; ++i) {
    if (auto done = time_query(**engine, first, time, warm_up); !done) {
      return tl::unexpected(done.error());
    }
  }
  progress bar("queries", plan.queries * plan.hit_percents.size(), time, plan.quiet);
  rpc_outcome outcome;
  for (const auto percent : plan.hit_percents) {
    rpc_row row;
    row.hit_percent = percent;
    row.hits = plan.hashes * percent / 100;
    auto asked = stored;
    for (std::size_t i = row.hits; i < asked.size(); ++i) {
      asked[i] = known_hash((std::uint64_t{1} << 63) + i);
    }
    const auto prepared = engine_client::prepare_query(options.instance, "bench-rpc", asked);
    for (std::size_t i = 0; i < plan.queries; ++i) {
      if (auto done = time_query(**engine, prepared, time, row); !done) {
        return tl::unexpected(done.error());
      }
      bar.advance(1);
    }
    outcome.rows.push_back(std::move(row));
  }
  const auto rate = savers.stop();
  static_cast<void>((*engine)->client().release(pin->lease));
  if (!rate) return tl::unexpected(rate.error());
  outcome.save_rate = *rate;
  return outcome;
}

void print_rpc_rows(const rpc_plan& plan, const rpc_outcome& outcome) {
  std::vector<std::vector<std::string>> cells{
      {"hits", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "empty p50", "empty p99"}};
  for (const auto& row : outcome.rows) {
    cells.push_back({fmt::format("{} %", row.hit_percent),
                     fmt::format("{:.3f}", row.query_ms.percentile(50)),
                     fmt::format("{:.3f}", row.query_ms.percentile(99)),
                     fmt::format("{:.3f}", row.query_ms.percentile(99.9)),
                     fmt::format("{:.3f}", row.query_ms.percentile(100)),
                     fmt::format("{:.3f}", row.empty_ms.percentile(50)),
                     fmt::format("{:.3f}", row.empty_ms.percentile(99))});
  }
  fmt::print("{}\n{} queries of {} hashes for each row, {} savers at {:.2f} GB/s in sum\n\n{}",
             machine_shape(), plan.queries, plan.hashes, plan.savers, outcome.save_rate,
             format_table(cells));
}

void print_rpc_json(const rpc_plan& plan, const rpc_outcome& outcome) {
  boost::json::array list;
  for (const auto& row : outcome.rows) {
    list.push_back(boost::json::object{{"hit_percent", row.hit_percent},
                                       {"hits", row.hits},
                                       {"p50_ms", row.query_ms.percentile(50)},
                                       {"p99_ms", row.query_ms.percentile(99)},
                                       {"p99_9_ms", row.query_ms.percentile(99.9)},
                                       {"max_ms", row.query_ms.percentile(100)},
                                       {"empty_call_p50_ms", row.empty_ms.percentile(50)},
                                       {"empty_call_p99_ms", row.empty_ms.percentile(99)}});
  }
  const boost::json::object document{{"command", rpc_command},
                                     {"machine", machine_json()},
                                     {"hashes", plan.hashes},
                                     {"queries", plan.queries},
                                     {"savers", plan.savers},
                                     {"save_gb_per_s", outcome.save_rate},
                                     {"rows", list}};
  fmt::print("{}\n", boost::json::serialize(document));
}

int run_rpc_plan(const rpc_plan& plan) {
  const system_clock time;
  std::unique_ptr<child_server> server;
  auto address = plan.address;
  if (address.empty()) {
    auto started = child_server::start({"", {"--pool-size", format_bytes(plan.pool_bytes)}}, time);
    if (!started) return bench_error(rpc_command, started.error());
    server = std::move(*started);
    address = server->addresses().grpc;
  }
  const auto outcome = measure_queries(plan, address, time);
  if (!outcome) return bench_error(rpc_command, outcome.error());
  if (plan.json) {
    print_rpc_json(plan, *outcome);
  } else {
    print_rpc_rows(plan, *outcome);
  }
  return bench_ok;
}

}  // namespace

int bench_rpc(std::span<const std::string> args) {
  try {
    const auto given = parse_bench_options(rpc_command, rpc_purpose, rpc_options, args);
    if (!given.values) return given.status;
    return run_rpc_plan(rpc_plan_from(*given.values));
  } catch (const std::exception& thrown) {
    return bench_error(rpc_command, {errc::internal, thrown.what()});
  }
}

}  // namespace kvd
