#include "cli/bench_net.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <sys/mman.h>

#include "cli/bench.hpp"
#include "cli/bench_net_holder.hpp"
#include "core/options.hpp"
#include "core/random.hpp"
#include "core/units.hpp"
#include "transport/peer/open_peer_port.hpp"

namespace kvd {

namespace {

constexpr std::string_view net_command = "bench net";
constexpr std::string_view net_purpose =
    "Reads blocks at shuffled offsets from the pool of another process, over TCP and over a\n"
    "mapping, in turns with iperf3 over the same network and with memcpy of the same blocks. "
    "Every\n"
    "byte is checked. Figures are medians of the rounds, percentages medians of the rounds'.";

result<std::string> parse_net_block(std::string_view text) {
  const auto size = parse_bytes(text);
  if (!size) return tl::unexpected(size.error());
  if (size->bytes < 4096 || size->bytes > (64 << 20) || size->bytes % 4096 != 0) {
    return fail(errc::invalid_argument, "a block size is a multiple of 4kb up to 64mb");
  }
  return format_bytes(size->bytes);
}

const option net_options[] = {
    {.name = "block-size",
     .kind = option_kind::list,
     .fallback = "4kb,64kb,256kb,1mb,2mb",
     .value = "SIZES",
     .group = "What to move",
     .help = "Bytes of one piece.",
     .parse = parse_net_block},
    {.name = "bytes",
     .kind = option_kind::size,
     .fallback = "512mb",
     .value = "SIZE",
     .group = "What to move",
     .help = "Bytes of the pool, all of which a round reads.",
     .low = 64 << 20,
     .high = std::uint64_t{1} << 36},
    {.name = "rounds",
     .kind = option_kind::count,
     .fallback = "5",
     .value = "N",
     .group = "What to move",
     .help = "Rounds of each block size.",
     .low = 1,
     .high = 1000},
    {.name = "streams",
     .kind = option_kind::count,
     .fallback = "1",
     .value = "N",
     .group = "Network",
     .help = "Connections, of kvd and of iperf3.",
     .low = 1,
     .high = 8},
    {.name = "netns",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Network",
     .help = "Two network namespaces with a veth pair between them, instead of the loopback. Needs "
             "root; nothing of them stays."},
    {.name = "copy-threads",
     .kind = option_kind::count,
     .fallback = "2",
     .value = "N",
     .group = "Network",
     .help = "Threads that copy from the mapping, and of the memcpy beside it.",
     .low = 1,
     .high = 256},
    {.name = "no-iperf",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Network",
     .help = "Without iperf3."},
    {.name = "json",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "Output",
     .help = "Figures as JSON."},
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

struct net_plan {
  std::vector<std::uint64_t> block_sizes;
  std::uint64_t bytes = 0;
  std::size_t rounds = 1;
  std::size_t streams = 1;
  unsigned copy_threads = 1;
  bool namespaces = false;
  bool iperf = true;
  bool json = false;
  bool quiet = false;
};

net_plan net_plan_from(const resolution& given) {
  net_plan plan;
  for (const auto& text : given.get<std::vector<std::string>>("block-size"))
    plan.block_sizes.push_back(parse_bytes(text)->bytes);
  plan.bytes = given.get<std::uint64_t>("bytes") >> 26 << 26;
  plan.rounds = given.get<std::uint64_t>("rounds");
  plan.streams = given.get<std::uint64_t>("streams");
  plan.copy_threads = static_cast<unsigned>(given.get<std::uint64_t>("copy-threads"));
  plan.namespaces = given.get<bool>("netns");
  plan.iperf = !given.get<bool>("no-iperf");
  plan.json = given.get<bool>("json");
  plan.quiet = given.get<bool>("quiet");
  return plan;
}

// Transparent huge pages, as a pool has.
class net_memory {
public:
  static result<std::unique_ptr<net_memory>> create(std::size_t bytes) {
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return fail(errc::io, std::strerror(errno));
    ::madvise(at, bytes, MADV_HUGEPAGE);
    std::memset(at, 0x5a, bytes);
    return std::unique_ptr<net_memory>(new net_memory({static_cast<std::byte*>(at), bytes}));
  }
  ~net_memory() { ::munmap(all_.data(), all_.size()); }
  net_memory(const net_memory&) = delete;
  net_memory& operator=(const net_memory&) = delete;
  std::span<std::byte> all() const noexcept { return all_; }

private:
  explicit net_memory(std::span<std::byte> all) : all_(all) {}
  std::span<std::byte> all_;
};

// One link's end: reads everything once, in several reads that are on their way together.
class link_reader {
public:
  static result<std::unique_ptr<link_reader>> open(const std::string& link, const net_plan& plan,
                                                   const net_holder& holder, const clock& time) {
    std::unique_ptr<link_reader> made(new link_reader);
    system_random random;
    peer_options options;
    options.links = {link};
    options.copy_threads = plan.copy_threads;
    auto port = open_peer_port(options, made->nothing_, time, random, made->metrics_);
    if (!port) return tl::unexpected(port.error());
    made->port_ = std::move(*port);
    auto remote = made->port_->open(holder.address());
    if (!remote) return tl::unexpected(remote.error());
    made->remote_ = std::move(*remote);
    return made;
  }

  // GB/s.
  result<double> run(std::span<const peer_piece> pieces, std::uint64_t bytes, const clock& time) {
    const auto each = std::max<std::size_t>(1, pieces.size() * read_bytes / bytes);
    std::vector<piece_state> states(pieces.size());
    std::vector<std::unique_ptr<one_read>> reads;
    left_.store((pieces.size() + each - 1) / each);
    const auto begin = time.now();
    for (std::size_t at = 0; at < pieces.size(); at += each) {
      const auto count = std::min(each, pieces.size() - at);
      auto& read = *reads.emplace_back(std::make_unique<one_read>());
      read.pieces = pieces.subspan(at, count);
      read.states = std::span(states).subspan(at, count);
      read.deadline = begin + std::chrono::minutes(2);
      read.owner = this;
      read.on_done = [](peer_read& of, peer_outcome how) noexcept {
        static_cast<one_read&>(of).outcome = how;
      };
      read.on_released = [](peer_read& of) noexcept {
        auto& left = static_cast<link_reader*>(of.owner)->left_;
        if (left.fetch_sub(1) == 1) left.notify_all();
      };
      if (!port_->read(remote_, read)) return fail(errc::internal, "a read was not accepted");
    }
    for (auto left = left_.load(); left != 0; left = left_.load())
      left_.wait(left);
    const auto seconds = seconds_between(begin, time.now());
    for (const auto& read : reads) {
      if (read->outcome != peer_outcome::done) {
        return fail(errc::io, fmt::format("a read ended as {}", name(read->outcome)));
      }
    }
    return gigabytes(static_cast<double>(bytes)) / seconds;
  }

private:
  static constexpr std::uint64_t read_bytes = 64 << 20;
  struct one_read : peer_read {
    peer_outcome outcome = peer_outcome::count;
  };
  link_reader() = default;
  peer_pool nothing_;
  peer_metrics metrics_;
  std::atomic<std::size_t> left_{0};
  std::unique_ptr<peer_port> port_;
  std::shared_ptr<peer_remote> remote_;
};

struct net_row {
  std::uint64_t block = 0;
  samples tcp, iperf, tcp_percent, mapped, memcpy_rate, mapped_percent;
};

// Everything that a block size is measured with.
class net_run {
public:
  static result<std::unique_ptr<net_run>> start(const net_plan& plan, const clock& time) {
    std::unique_ptr<net_run> run(new net_run(plan, time));
    net_holder_plan other{plan.bytes, plan.streams, plan.namespaces, plan.iperf};
    auto holder = net_holder::start(other, time);
    if (!holder) return tl::unexpected(holder.error());
    run->holder_ = std::move(*holder);
    for (auto* const memory : {&run->to_, &run->from_}) {
      auto made = net_memory::create(plan.bytes);
      if (!made) return tl::unexpected(made.error());
      *memory = std::move(*made);
    }
    for (const auto& [link, reader] :
         {std::pair{"tcp", &run->tcp_}, std::pair{"shm", &run->mapped_}}) {
      auto opened = link_reader::open(link, plan, *run->holder_, time);
      if (!opened) return tl::unexpected(opened.error());
      *reader = std::move(*opened);
    }
    return run;
  }

  result<void> round(net_row& row, std::uint64_t seed, bool measured) {
    shuffle(row.block, seed);
    const auto tcp = read(*tcp_);
    if (!tcp) return tl::unexpected(tcp.error());
    result<double> iperf = 0;
    if (plan_.iperf) iperf = iperf_rate();
    if (!iperf) return tl::unexpected(iperf.error());
    const auto mapped = read(*mapped_);
    if (!mapped) return tl::unexpected(mapped.error());
    const auto ceiling = memcpy_all();
    if (!ceiling) return tl::unexpected(ceiling.error());
    if (!measured) return {};
    row.tcp.add(*tcp);
    row.iperf.add(*iperf);
    row.tcp_percent.add(*iperf > 0 ? 100 * *tcp / *iperf : 0);
    row.mapped.add(*mapped);
    row.memcpy_rate.add(*ceiling);
    row.mapped_percent.add(100 * *mapped / *ceiling);
    return {};
  }

private:
  net_run(const net_plan& plan, const clock& time) : plan_(plan), time_(time) {}

  // Blocks come from anywhere in the pool and go side by side, as a prefix's do.
  void shuffle(std::uint64_t block, std::uint64_t seed) {
    pieces_.clear();
    for (std::uint64_t at = 0; at + block <= plan_.bytes; at += block)
      pieces_.push_back({at, nullptr, block});
    seeded_random order(seed);
    for (std::size_t i = pieces_.size(); i > 1; --i)
      std::swap(pieces_[i - 1], pieces_[order.below(i)]);
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      pieces_[i].to = to_->all().data() + i * block;
    moved_ = pieces_.size() * block;
  }

  result<double> read(link_reader& over) {
    std::memset(to_->all().data(), 0, moved_);
    auto rate = over.run(pieces_, moved_, time_);
    if (!rate) return rate;
    constexpr auto cell = net_holder::cell_bytes;
    for (const auto& piece : pieces_) {
      for (std::uint64_t at = 0; at < piece.bytes; at += cell) {
        if (first_wrong_byte({piece.to + at, cell}, (piece.offset + at) / cell)) {
          return fail(errc::internal, fmt::format("wrong bytes at {}", piece.offset + at));
        }
      }
    }
    return rate;
  }

  result<double> memcpy_all() {
    const auto threads = plan_.copy_threads;
    const auto seconds = time_parallel(time_, threads, [&](std::size_t i) -> result<void> {
      const auto share = pieces_.size() / threads;
      const auto last = i + 1 == threads ? pieces_.size() : (i + 1) * share;
      for (auto at = i * share; at < last; ++at)
        std::memcpy(pieces_[at].to, from_->all().data() + pieces_[at].offset, pieces_[at].bytes);
      return {};
    });
    if (!seconds) return tl::unexpected(seconds.error());
    return gigabytes(static_cast<double>(moved_)) / *seconds;
  }

  result<double> iperf_rate() {
    const auto each = plan_.bytes / plan_.streams;
    const auto text = printed_by({"iperf3", "-c", holder_->host(), "-p",
                                  fmt::format("{}", net_holder::iperf_port), "-J", "-R", "-n",
                                  fmt::format("{}", each), "-P", fmt::format("{}", plan_.streams)});
    if (!text) return tl::unexpected(text.error());
    boost::json::error_code code;
    const auto answer = boost::json::parse(*text, code);
    if (code || answer.at("end").as_object().if_contains("sum_received") == nullptr) {
      return fail(errc::io, "iperf3 printed no figures");
    }
    const auto& sum = answer.at("end").at("sum_received");
    return sum.at("bits_per_second").to_number<double>() / 8e9;
  }

  const net_plan& plan_;
  const clock& time_;
  std::unique_ptr<net_holder> holder_;
  std::unique_ptr<net_memory> to_;
  std::unique_ptr<net_memory> from_;  // memcpy's source
  std::unique_ptr<link_reader> tcp_;
  std::unique_ptr<link_reader> mapped_;
  std::vector<peer_piece> pieces_;
  std::uint64_t moved_ = 0;
};

void print_net(const net_plan& plan, const std::vector<net_row>& rows) {
  if (plan.json) {
    boost::json::array list;
    for (const auto& row : rows) {
      list.push_back(
          boost::json::object{{"block_bytes", row.block},
                              {"tcp_gb_per_s", row.tcp.median()},
                              {"iperf3_gb_per_s", row.iperf.median()},
                              {"tcp_percent_of_iperf3", row.tcp_percent.median()},
                              {"mapped_gb_per_s", row.mapped.median()},
                              {"memcpy_gb_per_s", row.memcpy_rate.median()},
                              {"mapped_percent_of_memcpy", row.mapped_percent.median()}});
    }
    const boost::json::object document{{"command", "bench net"},
                                       {"machine", machine_json()},
                                       {"bytes", plan.bytes},
                                       {"streams", plan.streams},
                                       {"copy_threads", plan.copy_threads},
                                       {"namespaces", plan.namespaces},
                                       {"rounds", plan.rounds},
                                       {"rows", list}};
    fmt::print("{}\n", boost::json::serialize(document));
    return;
  }
  std::vector<std::vector<std::string>> cells{
      {"block", "TCP GB/s", "iperf3", "ratio", "mapped GB/s", "memcpy", "ratio"}};
  for (const auto& row : rows) {
    cells.push_back({format_bytes(row.block), fmt::format("{:.2f}", row.tcp.median()),
                     fmt::format("{:.2f}", row.iperf.median()),
                     fmt::format("{:.0f} %", row.tcp_percent.median()),
                     fmt::format("{:.2f}", row.mapped.median()),
                     fmt::format("{:.2f}", row.memcpy_rate.median()),
                     fmt::format("{:.0f} %", row.mapped_percent.median())});
  }
  fmt::print("{}\n{} a round, {}, {} stream(s), {} copy threads, {} rounds; every byte checked\n\n"
             "{}\n",
             machine_shape(), format_bytes(plan.bytes),
             plan.namespaces ? "two network namespaces" : "loopback", plan.streams,
             plan.copy_threads, plan.rounds, format_table(cells));
}

int run_net_plan(const net_plan& plan) {
  const system_clock time;
  auto run = net_run::start(plan, time);
  if (!run) return bench_error(net_command, run.error());
  std::vector<net_row> rows(plan.block_sizes.size());
  {
    progress bar("net rounds", rows.size() * (plan.rounds + 1), time, plan.quiet);
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i].block = plan.block_sizes[i];
    // Round by round over all sizes, so that a slow minute is nobody's own.
    for (std::size_t round = 0; round <= plan.rounds; ++round) {
      for (auto& row : rows) {
        if (auto done = (*run)->round(row, round, round > 0); !done) {
          return bench_error(net_command, done.error());
        }
        bar.advance(1);
      }
    }
  }
  print_net(plan, rows);
  return bench_ok;
}

}  // namespace

int bench_net(std::span<const std::string> args) {
  try {
    const auto given = parse_bench_options(net_command, net_purpose, net_options, args);
    if (!given.values) return given.status;
    return run_net_plan(net_plan_from(*given.values));
  } catch (const std::exception& thrown) {
    return bench_error(net_command, {errc::internal, thrown.what()});
  }
}

}  // namespace kvd
