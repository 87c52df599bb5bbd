#include "cli/bench_trace.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/bench.hpp"
#include "cli/bench_engine.hpp"
#include "cli/bench_memcpy.hpp"
#include "cli/bench_server.hpp"
#include "core/clock.hpp"
#include "core/options.hpp"
#include "core/random.hpp"
#include "core/units.hpp"
#include "memory/policy_replay.hpp"

namespace kvd {

namespace {

constexpr std::string_view trace_command = "bench trace";
constexpr std::string_view trace_purpose =
    "Replays a trace of prompts (JSON lines with hash_ids, Mooncake's format) as engines that "
    "share\n"
    "a namespace: each request queries, loads what hits, checks every loaded byte, computes what\n"
    "misses, and saves it. Prints hits beside the trace's ceiling and GB/s beside memcpy's.";

const option trace_options[] = {
    {.name = "trace", .value = "FILE", .group = "What to replay", .help = "The trace; required."},
    {.name = "requests",
     .kind = option_kind::count,
     .fallback = "0",
     .value = "N",
     .group = "What to replay",
     .help = "Only the first N requests; 0 is all.",
     .high = 1'000'000'000},
    {.name = "engines",
     .kind = option_kind::count,
     .fallback = "2",
     .value = "N",
     .group = "What to replay",
     .help = "Engines that take turns at the requests.",
     .low = 1,
     .high = 64},
    {.name = "block-bytes",
     .kind = option_kind::size,
     .fallback = "64kb",
     .value = "SIZE",
     .group = "What to replay",
     .help = "Bytes of one block.",
     .low = 512,
     .high = 1 << 30},
    {.name = "layers",
     .kind = option_kind::count,
     .fallback = "1",
     .value = "N",
     .group = "What to replay",
     .help = "Layers that share a block's bytes.",
     .low = 1,
     .high = 256},
    {.name = "verify",
     .kind = option_kind::flag,
     .fallback = "true",
     .group = "What to replay",
     .help = "Compare every loaded block byte for byte with what its id stands for."},
    {.name = "pool-percent",
     .kind = option_kind::count,
     .fallback = "10",
     .value = "PERCENT",
     .group = "Server",
     .help = "Pool of the started server, of the trace's distinct blocks.",
     .low = 1,
     .high = 1000},
    {.name = "ssd-path",
     .value = "FILE",
     .group = "Server",
     .help = "File for an SSD tier of the started server that holds all distinct blocks; each "
             "request is on the file before the next one of its engine."},
    {.name = "address",
     .value = "HOST:PORT",
     .group = "Server",
     .help = "gRPC address of a running server; without it one is started."},
    {.name = "http",
     .fallback = "127.0.0.1:9091",
     .value = "HOST:PORT",
     .group = "Server",
     .help = "HTTP address of that running server, for the hints that are printed."},
    {.name = "json",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "One JSON document instead of text."},
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

struct trace_plan {
  std::string path;
  std::size_t requests = 0;  // 0: all
  std::size_t engines = 1;
  std::uint64_t block_bytes = 0;
  std::size_t layers = 1;
  bool verify = true;
  std::uint64_t pool_percent = 0;
  std::string ssd_path;
  std::string address;
  std::string http;
  bool json = false;
  bool quiet = false;
};

trace_plan trace_plan_from(const resolution& given) {
  trace_plan plan;
  plan.path = given.get<std::string>("trace");
  plan.requests = given.get<std::uint64_t>("requests");
  plan.engines = given.get<std::uint64_t>("engines");
  plan.block_bytes = given.get<std::uint64_t>("block-bytes");
  plan.layers = given.get<std::uint64_t>("layers");
  plan.verify = given.get<bool>("verify");
  plan.pool_percent = given.get<std::uint64_t>("pool-percent");
  plan.ssd_path = given.get<std::string>("ssd-path");
  plan.address = given.get<std::string>("address");
  plan.http = given.get<std::string>("http");
  plan.json = given.get<bool>("json");
  plan.quiet = given.get<bool>("quiet");
  return plan;
}

// The first `requests` of a trace. Ids count from 0 in order of appearance, so those of a slice are
// the smallest ones.
void keep_first(block_trace& trace, std::size_t requests) {
  if (requests == 0 || requests >= trace.request_ends.size()) return;
  trace.request_ends.resize(requests);
  trace.references.resize(trace.request_ends.back());
  std::uint32_t distinct = 0;
  for (const auto id : trace.references)
    distinct = std::max(distinct, id + 1);
  trace.fingerprints.resize(distinct);
}

std::span<const std::uint32_t> request_of(const block_trace& trace, std::size_t number) {
  const auto begin = number == 0 ? 0 : trace.request_ends[number - 1];
  return std::span(trace.references).subspan(begin, trace.request_ends[number] - begin);
}

std::uint32_t longest_request(const block_trace& trace) {
  std::size_t longest = 1;
  for (std::size_t i = 0; i < trace.request_ends.size(); ++i) {
    longest = std::max(longest, request_of(trace, i).size());
  }
  return static_cast<std::uint32_t>(longest);
}

// What one engine, or all together, did.
struct replay_tally {
  std::uint64_t requests = 0;
  std::uint64_t references = 0;
  std::uint64_t hits = 0;
  std::uint64_t verified = 0;
  std::uint64_t loaded_blocks = 0;
  std::uint64_t saved_blocks = 0;
  double load_seconds = 0;  // inside the calls
  double save_seconds = 0;
  samples query_ms;

  void add(const replay_tally& other) {
    requests += other.requests;
    references += other.references;
    hits += other.hits;
    verified += other.verified;
    loaded_blocks += other.loaded_blocks;
    saved_blocks += other.saved_blocks;
    load_seconds += other.load_seconds;
    save_seconds += other.save_seconds;
    query_ms.add(other.query_ms);
  }
};

// One engine that takes its turn at requests. A trace's id stands for a hash and for bytes.
class trace_engine {
public:
  trace_engine(std::unique_ptr<bench_engine> engine, std::uint32_t blocks, bool verify,
               const clock& time)
      : engine_(std::move(engine)), verify_(verify), time_(time), blocks_(blocks) {
    std::iota(blocks_.begin(), blocks_.end(), 0u);
  }

  result<void> serve(std::size_t number, std::span<const std::uint32_t> ids) {
    hashes_.clear();
    for (const auto id : ids)
      hashes_.push_back(known_hash(id));
    const auto begin = time_.now();
    const auto found = engine_->query(hashes_);
    tally_.query_ms.add(1e3 * seconds_between(begin, time_.now()));
    if (!found) return tl::unexpected(found.error());
    const auto hits = static_cast<std::size_t>(found->hits);
    if (hits > ids.size()) {
      return fail(errc::internal,
                  fmt::format("request {}: {} hits of {} hashes", number, hits, ids.size()));
    }
    tally_.requests += 1;
    tally_.references += ids.size();
    tally_.hits += hits;
    if (hits > 0) {
      if (auto loaded = load(number, ids.first(hits), found->lease); !loaded) return loaded;
    }
    return compute_and_save(ids, hits);
  }

  const replay_tally& tally() const noexcept { return tally_; }

private:
  result<void> load(std::size_t number, std::span<const std::uint32_t> ids,
                    std::string_view lease) {
    const auto targets = std::span(blocks_).first(ids.size());
    if (verify_) {
      for (const auto target : targets)
        engine_->poison(target);
    }
    const auto begin = time_.now();
    if (auto loaded = engine_->load(lease, targets); !loaded) return loaded;
    tally_.load_seconds += seconds_between(begin, time_.now());
    tally_.loaded_blocks += ids.size();
    if (!verify_) return {};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (auto right = engine_->verify(targets[i], ids[i]); !right) {
        return fail(errc::internal, fmt::format("request {}, block {} (trace id {}): {}", number, i,
                                                ids[i], right.error().detail));
      }
    }
    tally_.verified += ids.size();
    return {};
  }

  result<void> compute_and_save(std::span<const std::uint32_t> ids, std::size_t hits) {
    if (hits == ids.size()) return {};
    for (std::size_t i = hits; i < ids.size(); ++i)
      engine_->fill(blocks_[i], ids[i]);
    const auto begin = time_.now();
    const auto count = ids.size() - hits;
    auto saved = engine_->save(std::span(blocks_).subspan(hits, count),
                               std::span(hashes_).subspan(hits, count));
    tally_.save_seconds += seconds_between(begin, time_.now());
    tally_.saved_blocks += count;
    return saved;
  }

  std::unique_ptr<bench_engine> engine_;
  bool verify_;
  const clock& time_;
  std::vector<std::uint32_t> blocks_;
  std::vector<std::string> hashes_;
  replay_tally tally_;
};

struct trace_outcome {
  replay_tally tally;
  double ceiling = 0;    // of the slice
  double lru_ratio = 0;  // of LRU on as many blocks as the pool holds
  std::uint64_t pool_bytes = 0;
  double seconds = 0;
  samples save_memcpy, load_memcpy;  // GB/s of one thread, as one engine copies for itself
};

constexpr std::uint64_t record_room = 4096;  // on SSD a block has a header beside it
std::uint64_t pool_bytes_of(const trace_plan& plan, const block_trace& trace) {
  const auto bytes = trace.distinct() * plan.block_bytes * plan.pool_percent / 100;
  return std::max<std::uint64_t>(16 << 20, (bytes + (1 << 20) - 1) >> 20 << 20);  // some slabs
}

result<double> lru_ratio(const block_trace& trace, std::uint64_t capacity, const clock& time) {
  auto policy = make_eviction_policy("lru");
  if (!policy) return tl::unexpected(policy.error());
  const auto blocks = std::clamp<std::uint64_t>(capacity, 1, trace.distinct());
  return replay(trace, **policy, static_cast<std::uint32_t>(blocks), hit_measure::prefix, time)
      .hit_ratio();
}

result<void> serve_all(const trace_plan& plan, const block_trace& trace,
                       std::span<const std::unique_ptr<trace_engine>> engines,
                       const std::string& http, const clock& time, trace_outcome& outcome) {
  progress bar("requests", trace.request_ends.size(), time, plan.quiet);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto seconds = time_parallel(time, engines.size(), [&](std::size_t i) -> result<void> {
    while (!failed.load()) {
      const auto number = next.fetch_add(1);
      if (number >= trace.request_ends.size()) break;
      if (auto served = engines[i]->serve(number, request_of(trace, number)); !served) {
        failed.store(true);
        return served;
      }
      while (!plan.ssd_path.empty() && status_number(http, "/ssd/write_backlog", time) > 0)
        pause_ms(1);
      bar.advance(1);
    }
    return {};
  });
  if (!seconds) return tl::unexpected(seconds.error());
  outcome.seconds = *seconds;
  for (const auto& engine : engines)
    outcome.tally.add(engine->tally());
  return {};
}

result<void> measure_memcpy(bench_engine& engine, const clock& time, trace_outcome& outcome) {
  const auto tensor = engine.tensor();
  auto ceiling = memcpy_ceiling::create(tensor.size(), 1, time);
  if (!ceiling) return tl::unexpected(std::move(ceiling.error()));
  for (int i = 0; i < 5; ++i) {
    outcome.save_memcpy.add(ceiling->save_rate({{tensor}}));
    outcome.load_memcpy.add(ceiling->load_rate({{tensor}}));
  }
  return {};
}

result<trace_outcome> replay_trace(const trace_plan& plan, const block_trace& trace,
                                   const server_addresses& where, const clock& time) {
  trace_outcome outcome;
  outcome.ceiling = trace.ceiling();
  system_random random;
  const auto name_space = fmt::format("bench-trace-{:016x}", random.next());
  const auto blocks = longest_request(trace);
  std::vector<std::unique_ptr<trace_engine>> engines;
  for (std::size_t i = 0; i < plan.engines; ++i) {
    bench_engine_options options;
    options.address = where.grpc;
    options.instance = fmt::format("{}-{}", name_space, i);
    options.name_space = name_space;
    options.layers = plan.layers;
    options.blocks = blocks;
    options.block_bytes = plan.block_bytes;
    auto engine = bench_engine::start(options, time, random);
    if (!engine) return tl::unexpected(std::move(engine.error()));
    if (i == 0) {
      if (auto done = measure_memcpy(**engine, time, outcome); !done) {
        return tl::unexpected(std::move(done.error()));
      }
    }
    engines.push_back(
        std::make_unique<trace_engine>(std::move(*engine), blocks, plan.verify, time));
  }
  if (auto served = serve_all(plan, trace, engines, where.http, time, outcome); !served) {
    return tl::unexpected(std::move(served.error()));
  }
  return outcome;
}

double trace_rate(std::uint64_t blocks, std::uint64_t block_bytes, double seconds) {
  const auto bytes = static_cast<double>(blocks) * static_cast<double>(block_bytes);
  return seconds > 0 ? gigabytes(bytes) / seconds : 0;
}

double trace_hit_ratio(const replay_tally& tally) {
  if (tally.references == 0) return 0;
  return static_cast<double>(tally.hits) / static_cast<double>(tally.references);
}

void print_trace_text(const trace_plan& plan, const block_trace& trace,
                      const trace_outcome& outcome, const server_addresses& where) {
  const auto& tally = outcome.tally;
  fmt::print("{}\n{} requests, {} block references, {} distinct, {} engines, blocks of {}\n\n",
             machine_shape(), tally.requests, tally.references, trace.distinct(), plan.engines,
             format_bytes(plan.block_bytes));
  fmt::print("prefix hits  {:.2f} %, ceiling of this slice {:.2f} %", 100 * trace_hit_ratio(tally),
             100 * outcome.ceiling);
  if (outcome.pool_bytes != 0) {
    fmt::print(", LRU simulated {:.2f} % in a pool of {}", 100 * outcome.lru_ratio,
               format_bytes(outcome.pool_bytes));
  }
  fmt::print("\nloaded       {} blocks at {:.3f} GB/s for each engine, memcpy by one thread {:.2f}",
             tally.loaded_blocks,
             trace_rate(tally.loaded_blocks, plan.block_bytes, tally.load_seconds),
             outcome.load_memcpy.median());
  fmt::print("\nsaved        {} blocks at {:.3f} GB/s for each engine, memcpy by one thread {:.2f}",
             tally.saved_blocks,
             trace_rate(tally.saved_blocks, plan.block_bytes, tally.save_seconds),
             outcome.save_memcpy.median());
  fmt::print("\nqueries      p50 {:.3f} ms, p99 {:.3f} ms", tally.query_ms.percentile(50),
             tally.query_ms.percentile(99));
  fmt::print("\nverified     {} of {} loaded blocks, byte for byte; none was wrong\ntook         "
             "{:.1f} s\n",
             tally.verified, tally.loaded_blocks, outcome.seconds);
  if (plan.address.empty()) return;  // the server that was started is gone by now
  fmt::print("\nLook next:   kvd status --http {0}\n             curl http://{0}/metrics\n"
             "             curl http://{0}/status\n",
             where.http);
}

void print_trace_json(const trace_plan& plan, const block_trace& trace,
                      const trace_outcome& outcome) {
  const auto& tally = outcome.tally;
  boost::json::object document{
      {"command", trace_command},
      {"machine", machine_json()},
      {"trace", plan.path},
      {"requests", tally.requests},
      {"references", tally.references},
      {"distinct_blocks", trace.distinct()},
      {"engines", plan.engines},
      {"block_bytes", plan.block_bytes},
      {"hits", tally.hits},
      {"hit_ratio", trace_hit_ratio(tally)},
      {"ceiling", outcome.ceiling},
      {"loaded_blocks", tally.loaded_blocks},
      {"load_gb_per_s", trace_rate(tally.loaded_blocks, plan.block_bytes, tally.load_seconds)},
      {"load_memcpy_gb_per_s", outcome.load_memcpy.median()},
      {"saved_blocks", tally.saved_blocks},
      {"save_gb_per_s", trace_rate(tally.saved_blocks, plan.block_bytes, tally.save_seconds)},
      {"save_memcpy_gb_per_s", outcome.save_memcpy.median()},
      {"query_p50_ms", tally.query_ms.percentile(50)},
      {"query_p99_ms", tally.query_ms.percentile(99)},
      {"verified_blocks", tally.verified},
      {"seconds", outcome.seconds}};
  if (outcome.pool_bytes != 0) {
    document["pool_bytes"] = outcome.pool_bytes;
    document["lru_hit_ratio"] = outcome.lru_ratio;
  }
  fmt::print("{}\n", boost::json::serialize(document));
}

int run_trace_plan(const trace_plan& plan, const block_trace& trace) {
  const system_clock time;
  std::unique_ptr<child_server> server;
  server_addresses where{plan.address, plan.http};
  auto pool_bytes = pool_bytes_of(plan, trace);
  if (!plan.address.empty()) {
    pool_bytes = status_number(plan.http, "/pool/capacity_bytes", time);
  } else {
    auto started =
        child_server::start({"", server_flags(pool_bytes, plan.ssd_path,
                                              trace.distinct() * (plan.block_bytes + record_room))},
                            time);
    if (!started) return bench_error(trace_command, started.error());
    server = std::move(*started);
    where = server->addresses();
  }
  auto outcome = replay_trace(plan, trace, where, time);
  if (!outcome) return bench_error(trace_command, outcome.error());
  outcome->pool_bytes = pool_bytes;
  if (pool_bytes != 0) {
    const auto lru = lru_ratio(trace, pool_bytes / plan.block_bytes, time);
    if (!lru) return bench_error(trace_command, lru.error());
    outcome->lru_ratio = *lru;
  }
  if (plan.json) {
    print_trace_json(plan, trace, *outcome);
  } else {
    print_trace_text(plan, trace, *outcome, where);
  }
  return bench_ok;
}

}  // namespace

int bench_trace(std::span<const std::string> args) {
  try {
    const auto given = parse_bench_options(trace_command, trace_purpose, trace_options, args);
    if (!given.values) return given.status;
    const auto plan = trace_plan_from(*given.values);
    if (plan.path.empty()) {
      fmt::print(stderr, "kvd {}: --trace FILE is required\n", trace_command);
      return bench_usage;
    }
    if (plan.block_bytes % (64 * plan.layers) != 0) {
      fmt::print(stderr, "kvd {}: --block-bytes {} does not divide into --layers {} of 64 bytes\n",
                 trace_command, format_bytes(plan.block_bytes), plan.layers);
      return bench_usage;
    }
    auto trace = read_block_trace(plan.path);
    if (!trace) {
      fmt::print(stderr, "kvd {}: --trace: {}\n", trace_command, trace.error().detail);
      return bench_usage;
    }
    for (const auto& line : trace->bad_lines_named) {
      fmt::print(stderr, "kvd {}: warning: {}: {}\n", trace_command, plan.path, line);
    }
    keep_first(*trace, plan.requests);
    return run_trace_plan(plan, *trace);
  } catch (const std::exception& thrown) {
    return bench_error(trace_command, {errc::internal, thrown.what()});
  }
}

}  // namespace kvd
