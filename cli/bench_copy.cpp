#include "cli/bench_copy.hpp"

#include <algorithm>
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
#include "cli/bench_memcpy.hpp"
#include "cli/bench_server.hpp"
#include "core/clock.hpp"
#include "core/options.hpp"
#include "core/random.hpp"
#include "core/units.hpp"

namespace kvd {

namespace {

constexpr std::string_view copy_command = "bench copy";
constexpr std::string_view copy_purpose =
    "Saves and loads blocks through a server on host memory, checks every byte, and compares with\n"
    "plain memcpy of the same bytes by as many threads as the server's copy threads. Rounds take\n"
    "turns (memcpy, save, memcpy, load); figures are medians, percentages medians of the rounds'.";

result<std::string> parse_block_size(std::string_view text) {
  const auto size = parse_bytes(text);
  if (!size) return tl::unexpected(size.error());
  if (size->bytes < 512 || size->bytes > (std::uint64_t{1} << 30) || size->bytes % 64 != 0) {
    return fail(errc::invalid_argument, "a block size is a multiple of 64 bytes from 512b to 1gb");
  }
  return format_bytes(size->bytes);
}

const option copy_options[] = {
    {.name = "block-size",
     .kind = option_kind::list,
     .fallback = "64kb,256kb,1mb,2mb",
     .value = "SIZES",
     .group = "What to move",
     .help = "Bytes of one block over all its layers.",
     .parse = parse_block_size},
    {.name = "layers",
     .kind = option_kind::count,
     .fallback = "1",
     .value = "N",
     .group = "What to move",
     .help = "Layers that share a block's bytes.",
     .low = 1,
     .high = 256},
    {.name = "bytes",
     .kind = option_kind::size,
     .fallback = "256mb",
     .value = "SIZE",
     .group = "What to move",
     .help = "Bytes that each round saves, and loads.",
     .low = 64 << 10,
     .high = std::uint64_t{1} << 40},
    {.name = "batch",
     .kind = option_kind::size,
     .fallback = "64mb",
     .value = "SIZE",
     .group = "What to move",
     .help = "Bytes of one Save, Query or Load call.",
     .low = 512,
     .high = std::uint64_t{1} << 40},
    {.name = "clients",
     .kind = option_kind::count,
     .fallback = "2",
     .value = "N",
     .group = "What to move",
     .help = "Engines at once, each with its own connection.",
     .low = 1,
     .high = 256},
    {.name = "rounds",
     .kind = option_kind::count,
     .fallback = "5",
     .value = "N",
     .group = "What to move",
     .help = "Measured rounds, after one that is not.",
     .low = 1,
     .high = 1000},
    {.name = "address",
     .value = "HOST:PORT",
     .group = "Server",
     .help = "gRPC address of a running server; without it a server is started for each size."},
    {.name = "pool-size",
     .kind = option_kind::size,
     .value = "SIZE",
     .group = "Server",
     .help = "Pool of the started server; without it, room for all rounds.",
     .low = 1 << 20,
     .high = std::uint64_t{1} << 41},
    {.name = "copy-threads",
     .kind = option_kind::count,
     .fallback = "0",
     .value = "N",
     .group = "Server",
     .help = "Copy threads of the started server, and memcpy's; 0 is one a core. With --address, "
             "say what that server uses.",
     .high = 1024},
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

struct copy_plan {
  std::vector<std::uint64_t> block_sizes;
  std::size_t layers = 1;
  std::uint64_t round_bytes = 0;
  std::uint64_t batch_bytes = 0;
  std::size_t clients = 1;
  std::size_t rounds = 1;
  std::string address;           // empty: start a server
  std::uint64_t pool_bytes = 0;  // 0: room for all rounds
  unsigned copy_threads = 1;
  bool json = false;
  bool quiet = false;
};

struct copy_row {
  std::uint64_t block_bytes = 0;
  samples save, load;                  // GB/s
  samples save_ceiling, load_ceiling;  // GB/s of memcpy in the same round
  samples save_percent, load_percent;  // of that round's ceiling
  samples query_ms;                    // one Query of one batch
  std::uint64_t verified_blocks = 0;
};

copy_plan copy_plan_from(const resolution& given) {
  copy_plan plan;
  for (const auto& text : given.get<std::vector<std::string>>("block-size")) {
    plan.block_sizes.push_back(parse_bytes(text)->bytes);
  }
  plan.layers = given.get<std::uint64_t>("layers");
  plan.round_bytes = given.get<std::uint64_t>("bytes");
  plan.batch_bytes = given.get<std::uint64_t>("batch");
  plan.clients = given.get<std::uint64_t>("clients");
  plan.rounds = given.get<std::uint64_t>("rounds");
  plan.address = given.get<std::string>("address");
  if (given.given("pool-size")) plan.pool_bytes = given.get<std::uint64_t>("pool-size");
  const auto threads = static_cast<unsigned>(given.get<std::uint64_t>("copy-threads"));
  plan.copy_threads = threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  plan.json = given.get<bool>("json");
  plan.quiet = given.get<bool>("quiet");
  return plan;
}

// One engine's half of the run. Blocks [0, n) of its tensor are what it computed and saves, [n, 2n)
// where it loads to; both in an order of their own, as block tables of engines are.
class copy_client {
public:
  copy_client(std::unique_ptr<bench_engine> engine, std::size_t number, std::uint32_t blocks,
              std::size_t batch)
      : engine_(std::move(engine)), number_(number), batch_(batch), sources_(blocks),
        targets_(blocks), hashes_(blocks), seeds_(blocks) {
    std::iota(sources_.begin(), sources_.end(), 0u);
    std::iota(targets_.begin(), targets_.end(), blocks);
    seeded_random order(number);
    shuffle(sources_, order);
    shuffle(targets_, order);
  }

  std::span<std::byte> source_bytes() {
    return engine_->tensor().first(engine_->tensor().size() / 2);
  }

  // New content under new hashes, so that the server has seen none of it.
  void prepare(std::uint64_t round) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      seeds_[i] = spread((round << 40) ^ (std::uint64_t{number_} << 32) ^ i);
      hashes_[i] = known_hash(seeds_[i]);
      engine_->fill(sources_[i], seeds_[i]);
      engine_->poison(targets_[i]);
    }
  }

  result<void> save() {
    return each_batch([this](std::size_t at, std::size_t count) {
      return engine_->save(std::span(sources_).subspan(at, count),
                           std::span(hashes_).subspan(at, count));
    });
  }

  result<void> query(const clock& time, samples& query_ms) {
    leases_.clear();
    return each_batch([&](std::size_t at, std::size_t count) -> result<void> {
      const auto begin = time.now();
      auto answer = engine_->query(std::span(hashes_).subspan(at, count));
      query_ms.add(1e3 * seconds_between(begin, time.now()));
      if (!answer) return tl::unexpected(std::move(answer.error()));
      if (answer->hits != count) {
        return fail(errc::storage,
                    fmt::format("{} of {} blocks just saved are found; the server's pool is too "
                                "small for --bytes",
                                answer->hits, count));
      }
      leases_.push_back(std::move(answer->lease));
      return {};
    });
  }

  result<void> load() {
    return each_batch([this](std::size_t at, std::size_t count) {
      return engine_->load(leases_[at / batch_], std::span(targets_).subspan(at, count));
    });
  }

  result<void> verify() const {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      if (auto right = engine_->verify(targets_[i], seeds_[i]); !right) {
        return fail(errc::internal,
                    fmt::format("block {} of client {}: {}", i, number_, right.error().detail));
      }
    }
    return {};
  }

  std::size_t blocks() const noexcept { return sources_.size(); }

private:
  template<class Call>
  result<void> each_batch(Call&& call) {
    for (std::size_t at = 0; at < sources_.size(); at += batch_) {
      if (auto done = call(at, std::min(batch_, sources_.size() - at)); !done) return done;
    }
    return {};
  }

  static void shuffle(std::vector<std::uint32_t>& ids, seeded_random& order) {
    for (std::size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[order.below(i)]);
  }

  std::unique_ptr<bench_engine> engine_;
  std::size_t number_;
  std::size_t batch_;  // blocks of one call
  std::vector<std::uint32_t> sources_;
  std::vector<std::uint32_t> targets_;
  std::vector<std::string> hashes_;
  std::vector<std::uint64_t> seeds_;
  std::vector<std::string> leases_;  // of each batch
};

// All clients of one block size, and the memcpy beside them.
class copy_run {
public:
  static result<std::unique_ptr<copy_run>> start(const copy_plan& plan, std::uint64_t block_bytes,
                                                 const std::string& address, const clock& time) {
    const auto per_client =
        std::max<std::uint64_t>(1, plan.round_bytes / plan.clients / block_bytes);
    const auto batch = static_cast<std::size_t>(
        std::clamp<std::uint64_t>(plan.batch_bytes / block_bytes, 1, per_client));
    const auto moved = per_client * block_bytes * plan.clients;
    auto ceiling = memcpy_ceiling::create(moved, plan.copy_threads, time);
    if (!ceiling) return tl::unexpected(std::move(ceiling.error()));
    std::unique_ptr<copy_run> run(new copy_run(std::move(*ceiling), moved, time));
    run->row_.block_bytes = block_bytes;
    system_random random;
    // A namespace of this run alone: earlier blocks of a running server are no hits.
    const auto name_space = fmt::format("bench-copy-{:016x}", random.next());
    for (std::size_t i = 0; i < plan.clients; ++i) {
      bench_engine_options options;
      options.address = address;
      options.instance = fmt::format("{}-{}", name_space, i);
      options.name_space = name_space;
      options.layers = plan.layers;
      options.blocks = static_cast<std::uint32_t>(2 * per_client);
      options.block_bytes = block_bytes;
      auto engine = bench_engine::start(options, time, random);
      if (!engine) return tl::unexpected(std::move(engine.error()));
      run->clients_.push_back(std::make_unique<copy_client>(
          std::move(*engine), i, static_cast<std::uint32_t>(per_client), batch));
      run->pieces_.push_back(run->clients_.back()->source_bytes());
    }
    return run;
  }

  result<void> round(std::uint64_t number, bool measured) {
    const auto done = time_parallel(time_, clients_.size(), [&](std::size_t i) -> result<void> {
      clients_[i]->prepare(number);
      return {};
    });
    if (!done) return tl::unexpected(done.error());
    const auto save_ceiling = ceiling_.save_rate(pieces_);
    const auto save = timed([](copy_client& client) { return client.save(); });
    if (!save) return tl::unexpected(save.error());
    // The arena holds what the sources held, so that this changes no byte of them.
    const auto load_ceiling = ceiling_.load_rate(pieces_);
    samples query_ms;
    for (auto& client : clients_) {
      if (auto asked = client->query(time_, query_ms); !asked) return asked;
    }
    const auto load = timed([](copy_client& client) { return client.load(); });
    if (!load) return tl::unexpected(load.error());
    const auto verified = timed([](copy_client& client) { return client.verify(); });
    if (!verified) return tl::unexpected(verified.error());
    for (const auto& client : clients_)
      row_.verified_blocks += client->blocks();
    if (measured) record(*save, save_ceiling, *load, load_ceiling, query_ms.median());
    return {};
  }

  const copy_row& row() const noexcept { return row_; }

private:
  copy_run(memcpy_ceiling ceiling, std::uint64_t moved, const clock& time)
      : ceiling_(std::move(ceiling)), moved_(static_cast<double>(moved)), time_(time) {}

  // GB/s of all clients doing `act` at once.
  template<class Act>
  result<double> timed(Act&& act) {
    const auto seconds =
        time_parallel(time_, clients_.size(), [&](std::size_t i) { return act(*clients_[i]); });
    if (!seconds) return tl::unexpected(seconds.error());
    return *seconds > 0 ? gigabytes(moved_) / *seconds : 0;
  }

  void record(double save, double save_ceiling, double load, double load_ceiling, double query_ms) {
    row_.save.add(save);
    row_.save_ceiling.add(save_ceiling);
    row_.save_percent.add(100 * save / save_ceiling);
    row_.load.add(load);
    row_.load_ceiling.add(load_ceiling);
    row_.load_percent.add(100 * load / load_ceiling);
    row_.query_ms.add(query_ms);
  }

  memcpy_ceiling ceiling_;
  double moved_;
  const clock& time_;
  std::vector<std::unique_ptr<copy_client>> clients_;
  std::vector<std::span<std::byte>> pieces_;
  copy_row row_;
};

result<copy_row> measure_copies(const copy_plan& plan, std::uint64_t block_bytes, const clock& time,
                                progress& bar) {
  std::unique_ptr<child_server> server;
  auto address = plan.address;
  if (address.empty()) {
    // Every round's blocks stay resident: a warm-up round, the measured ones, and room to spare.
    const auto all_rounds = (plan.rounds + 2) * std::max(plan.round_bytes, block_bytes);
    const auto pool = plan.pool_bytes != 0 ? plan.pool_bytes
                                           : std::max<std::uint64_t>(all_rounds * 5 / 4, 64 << 20);
    auto started = child_server::start({"",
                                        {"--pool-size", format_bytes(pool), "--copy-threads",
                                         fmt::format("{}", plan.copy_threads)}},
                                       time);
    if (!started) return tl::unexpected(std::move(started.error()));
    server = std::move(*started);
    address = server->addresses().grpc;
  }
  auto run = copy_run::start(plan, block_bytes, address, time);
  if (!run) return tl::unexpected(std::move(run.error()));
  for (std::size_t i = 0; i <= plan.rounds; ++i) {
    if (auto done = (*run)->round(i, i > 0); !done) return tl::unexpected(std::move(done.error()));
    bar.advance(1);
  }
  return (*run)->row();
}

void print_copy_rows(const copy_plan& plan, const std::vector<copy_row>& rows) {
  std::vector<std::vector<std::string>> cells{
      {"block", "save GB/s", "memcpy", "ratio", "load GB/s", "memcpy", "ratio", "query ms"}};
  std::uint64_t verified = 0;
  for (const auto& row : rows) {
    cells.push_back({format_bytes(row.block_bytes), fmt::format("{:.2f}", row.save.median()),
                     fmt::format("{:.2f}", row.save_ceiling.median()),
                     fmt::format("{:.0f} %", row.save_percent.median()),
                     fmt::format("{:.2f}", row.load.median()),
                     fmt::format("{:.2f}", row.load_ceiling.median()),
                     fmt::format("{:.0f} %", row.load_percent.median()),
                     fmt::format("{:.2f}", row.query_ms.median())});
    verified += row.verified_blocks;
  }
  fmt::print("{}\n{} a round in calls of {}, {} clients, {} layers, {} copy threads, {} rounds\n\n",
             machine_shape(), format_bytes(plan.round_bytes), format_bytes(plan.batch_bytes),
             plan.clients, plan.layers, plan.copy_threads, plan.rounds);
  fmt::print("{}\n{} blocks verified byte for byte\n", format_table(cells), verified);
}

void print_copy_json(const copy_plan& plan, const std::vector<copy_row>& rows) {
  boost::json::array list;
  for (const auto& row : rows) {
    list.push_back(boost::json::object{{"block_bytes", row.block_bytes},
                                       {"save_gb_per_s", row.save.median()},
                                       {"save_memcpy_gb_per_s", row.save_ceiling.median()},
                                       {"save_percent_of_memcpy", row.save_percent.median()},
                                       {"load_gb_per_s", row.load.median()},
                                       {"load_memcpy_gb_per_s", row.load_ceiling.median()},
                                       {"load_percent_of_memcpy", row.load_percent.median()},
                                       {"query_ms", row.query_ms.median()},
                                       {"verified_blocks", row.verified_blocks}});
  }
  const boost::json::object document{{"command", "bench copy"},
                                     {"machine", machine_json()},
                                     {"round_bytes", plan.round_bytes},
                                     {"batch_bytes", plan.batch_bytes},
                                     {"clients", plan.clients},
                                     {"layers", plan.layers},
                                     {"copy_threads", plan.copy_threads},
                                     {"rounds", plan.rounds},
                                     {"rows", list}};
  fmt::print("{}\n", boost::json::serialize(document));
}

int run_copy_plan(const copy_plan& plan) {
  const system_clock time;
  std::vector<copy_row> rows;
  {
    progress bar("copy rounds", plan.block_sizes.size() * (plan.rounds + 1), time, plan.quiet);
    for (const auto block_bytes : plan.block_sizes) {
      auto row = measure_copies(plan, block_bytes, time, bar);
      if (!row) return bench_error(copy_command, row.error());
      rows.push_back(std::move(*row));
    }
  }
  if (plan.json) {
    print_copy_json(plan, rows);
  } else {
    print_copy_rows(plan, rows);
  }
  return bench_ok;
}

}  // namespace

int bench_copy(std::span<const std::string> args) {
  try {
    const auto given = parse_bench_options(copy_command, copy_purpose, copy_options, args);
    if (!given.values) return given.status;
    const auto plan = copy_plan_from(*given.values);
    for (const auto size : plan.block_sizes) {
      if (size % plan.layers != 0) {
        fmt::print(stderr, "kvd {}: --block-size {} does not divide into --layers {}\n",
                   copy_command, format_bytes(size), plan.layers);
        return bench_usage;
      }
    }
    return run_copy_plan(plan);
  } catch (const std::exception& thrown) {
    return bench_error(copy_command, {errc::internal, thrown.what()});
  }
}

}  // namespace kvd
