#include "cli/bench_ssd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.hpp"
#include "core/clock.hpp"
#include "core/options.hpp"
#include "core/random.hpp"
#include "core/units.hpp"
#include "storage/aligned_bytes.hpp"
#include "storage/open_file.hpp"

namespace kvd {

namespace {

constexpr std::string_view ssd_command = "bench ssd";
constexpr std::string_view ssd_purpose =
    "Writes and reads blocks at random offsets of a file, through the backend of the SSD tier, in\n"
    "turns with fio on the same file at the same block size and depth. Figures are medians of the\n"
    "rounds, percentages medians of the rounds'. The file is made, and stays; one that holds "
    "other\n"
    "bytes is refused.";

constexpr std::size_t huge_page = std::size_t{2} << 20;

// What the first bytes of a file that this command may overwrite are. fio starts behind it.
constexpr std::string_view ssd_mark = "kvd bench ssd: scratch file, may be overwritten\n";
constexpr std::uint64_t mark_bytes = std::uint64_t{2} << 20;

result<std::string> parse_ssd_block(std::string_view text) {
  const auto size = parse_bytes(text);
  if (!size) return tl::unexpected(size.error());
  if (size->bytes < 4096 || size->bytes > (std::uint64_t{64} << 20) || size->bytes % 4096 != 0) {
    return fail(errc::invalid_argument, "a block size is a multiple of 4kb up to 64mb");
  }
  return format_bytes(size->bytes);
}

constexpr std::string_view backend_words[] = {"best", "io_uring", "threads"};

const option ssd_options[] = {
    {.name = "path", .value = "FILE", .group = "File", .help = "The file to use. Required."},
    {.name = "size",
     .kind = option_kind::size,
     .fallback = "4gb",
     .value = "SIZE",
     .group = "File",
     .help = "Bytes of the file; each round writes and reads half as many.",
     .low = 64 << 20,
     .high = std::uint64_t{1} << 44},
    {.name = "backend",
     .fallback = "best",
     .value = "NAME",
     .group = "File",
     .help = "How the file is read and written.",
     .choices = backend_words},
    {.name = "block-size",
     .kind = option_kind::list,
     .fallback = "256kb,1mb,2mb",
     .value = "SIZES",
     .group = "What to move",
     .help = "Bytes of one request.",
     .parse = parse_ssd_block},
    {.name = "depth",
     .kind = option_kind::count,
     .fallback = "16",
     .value = "N",
     .group = "What to move",
     .help = "Requests on their way at once.",
     .low = 1,
     .high = 256},
    {.name = "rounds",
     .kind = option_kind::count,
     .fallback = "5",
     .value = "N",
     .group = "What to move",
     .help = "Rounds of each block size.",
     .low = 1,
     .high = 1000},
    {.name = "records",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "What to move",
     .help =
         "Requests as the tier makes them: a header of 4096 bytes elsewhere in memory, then the "
         "block."},
    {.name = "no-registration",
     .kind = option_kind::flag,
     .fallback = "false",
     .group = "What to move",
     .help = "Do not register the blocks' memory with io_uring."},
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

struct ssd_plan {
  std::string path;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> block_sizes;
  unsigned depth = 1;
  std::size_t rounds = 1;
  file_backend backend = file_backend::best;
  bool records = false;
  bool registered = true;
  bool json = false;
  bool quiet = false;
};

ssd_plan ssd_plan_from(const resolution& given) {
  ssd_plan plan;
  plan.path = given.get<std::string>("path");
  plan.bytes = given.get<std::uint64_t>("size") / mark_bytes * mark_bytes;
  for (const auto& text : given.get<std::vector<std::string>>("block-size"))
    plan.block_sizes.push_back(parse_bytes(text)->bytes);
  plan.depth = static_cast<unsigned>(given.get<std::uint64_t>("depth"));
  plan.rounds = given.get<std::uint64_t>("rounds");
  const auto& backend = given.get<std::string>("backend");
  if (backend == "io_uring") plan.backend = file_backend::uring;
  if (backend == "threads") plan.backend = file_backend::threads;
  plan.records = given.get<bool>("records");
  plan.registered = !given.get<bool>("no-registration");
  plan.json = given.get<bool>("json");
  plan.quiet = given.get<bool>("quiet");
  return plan;
}

// Huge pages: a request of 4 KiB pages has more segments than many devices take at once.
class huge_buffer {
public:
  static result<huge_buffer> create(std::size_t bytes) {
    const auto size = (bytes + huge_page - 1) / huge_page * huge_page + huge_page;
    void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      return fail(errc::io, fmt::format("a buffer of {} bytes: {}", size, std::strerror(errno)));
    }
    ::madvise(at, size, MADV_HUGEPAGE);
    std::memset(at, 0x5a, size);
    return huge_buffer({static_cast<std::byte*>(at), size});
  }
  huge_buffer(huge_buffer&& other) noexcept : all_(std::exchange(other.all_, {})) {}
  huge_buffer& operator=(huge_buffer&&) = delete;
  ~huge_buffer() {
    if (!all_.empty()) ::munmap(all_.data(), all_.size());
  }
  // From the first huge page's start on.
  std::span<std::byte> bytes() const {
    constexpr std::uintptr_t mask = (std::uintptr_t{2} << 20) - 1;
    const auto skip = (0 - reinterpret_cast<std::uintptr_t>(all_.data())) & mask;
    return all_.subspan(skip);
  }

private:
  explicit huge_buffer(std::span<std::byte> all) : all_(all) {}
  std::span<std::byte> all_;
};

// Keeps `depth` requests on their way until `count` have ended.
class ssd_pass {
public:
  ssd_pass(block_file& file, std::span<std::byte> memory, std::uint64_t block, unsigned depth,
           bool records)
      : file_(file), block_(block), headers_(records ? depth * header_bytes : 0), requests_(depth) {
    for (unsigned i = 0; i < depth; ++i) {
      auto& list = requests_[i].list;
      if (records) list[0] = {headers_.data() + i * header_bytes, header_bytes};
      list[records ? 1 : 0] = {memory.data() + i * block, block};
      requests_[i].pieces = {list.data(), records ? 2U : 1U};
      bytes_ = block + (records ? header_bytes : 0);
      requests_[i].on_done = finished;
      requests_[i].owner = this;
    }
  }

  struct figures {
    double gb_per_s = 0;
    double cpu_us = 0;  // of this process, kernel included, a request
  };
  // Random blocks behind the mark; writes are not synced, as fio's are not.
  result<figures> run(file_io::kind what, std::uint64_t count, const clock& time) {
    left_ = count;
    under_way_ = 0;
    error_ = 0;
    const auto begin = time.now();
    const auto cpu = cpu_seconds();
    for (auto& next : requests_) {
      next.what = what;
      submit(next);
    }
    while (under_way_ > 0)
      file_.poll(std::chrono::milliseconds(100));
    const auto seconds = seconds_between(begin, time.now());
    if (error_ != 0) {
      return fail(errc::io, fmt::format("{}: {}", what == file_io::kind::read ? "read" : "write",
                                        std::strerror(error_)));
    }
    return figures{seconds > 0 ? gigabytes(static_cast<double>(count * bytes_)) / seconds : 0,
                   1e6 * (cpu_seconds() - cpu) / static_cast<double>(count)};
  }

private:
  static constexpr std::size_t header_bytes = 4096;
  struct request : file_io {
    std::array<io_piece, 2> list{};
  };

  static double cpu_seconds() noexcept {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto of = [](const timeval& at) {
      return static_cast<double>(at.tv_sec) + 1e-6 * static_cast<double>(at.tv_usec);
    };
    return of(used.ru_utime) + of(used.ru_stime);
  }

  void submit(file_io& io) noexcept {
    if (left_ == 0 || error_ != 0) return;
    --left_;
    ++under_way_;
    io.offset = mark_bytes + random_.below((file_.bytes() - mark_bytes) / bytes_) * bytes_;
    file_.submit(io);
  }

  static void finished(file_io& io, int error) noexcept {
    auto& self = *static_cast<ssd_pass*>(io.owner);
    --self.under_way_;
    if (error != 0) self.error_ = error;
    self.submit(io);
  }

  block_file& file_;
  std::uint64_t block_;
  std::uint64_t bytes_ = 0;  // of one request
  aligned_bytes headers_;
  std::vector<request> requests_;
  seeded_random random_{1};
  std::uint64_t left_ = 0;
  std::size_t under_way_ = 0;
  int error_ = 0;
};

// What a program printed; its exit status and text on failure.
result<std::string> output_of(std::vector<std::string> words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errc::io, std::strerror(errno));
  std::vector<char*> arguments;
  for (auto& word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 65536> part;
  for (ssize_t got = 0; pid > 0 && (got = ::read(ends[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return fail(errc::io, "fork failed");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return fail(errc::not_found, fmt::format("{} is not installed", words[0]));
  }
  return fail(errc::io, fmt::format("{} ended with status {}", words[0], status));
}

// What fio's buffers lie on. Without huge pages that somebody reserved it has plain ones, and the
// kernel walks those page by page: a fair peer needs vm.nr_hugepages.
const char* fio_memory(const ssd_plan& plan, std::uint64_t block) {
  std::ifstream facts("/proc/meminfo");
  std::string key;
  std::uint64_t pages = 0;
  while (facts >> key && key != "HugePages_Free:")
    facts.ignore(256, '\n');
  facts >> pages;
  return pages * huge_page >= 2 * plan.depth * block ? "mmaphuge" : "mmap";
}

// GB/s by fio, of as many bytes of the same part of the file.
result<double> fio_rate(const ssd_plan& plan, std::uint64_t block, bool read, std::uint64_t count) {
  const auto text = output_of(
      {"fio", "--name=kvd", "--filename=" + plan.path, "--ioengine=io_uring", "--direct=1",
       fmt::format("--iomem={}", fio_memory(plan, block)),
       read ? "--rw=randread" : "--rw=randwrite", "--norandommap=1", "--allow_file_create=0",
       "--fallocate=none", "--output-format=json", fmt::format("--offset={}", mark_bytes),
       fmt::format("--size={}", (plan.bytes - mark_bytes) / block * block),
       fmt::format("--io_size={}", count * block), fmt::format("--bs={}", block),
       fmt::format("--iodepth={}", plan.depth)});
  if (!text) return tl::unexpected(text.error());
  boost::json::error_code code;
  // fio writes notes before its document.
  const auto start = text->find('{');
  const auto answer =
      boost::json::parse(start == std::string::npos ? "" : text->substr(start), code);
  if (code) return fail(errc::io, "fio printed no JSON");
  const auto& job = answer.at("jobs").at(0).at(read ? "read" : "write");
  return gigabytes(job.at("bw_bytes").to_number<double>());
}

struct ssd_row {
  std::uint64_t block = 0;
  samples write, read, fio_write, fio_read, write_percent, read_percent, write_cpu, read_cpu;
};

result<void> ssd_round(const ssd_plan& plan, ssd_pass& pass, ssd_row& row, const clock& time,
                       bool measured) {
  const auto count = std::max<std::uint64_t>(plan.bytes / 2 / row.block, plan.depth);
  for (const bool read : {false, true}) {
    const auto rate = pass.run(read ? file_io::kind::read : file_io::kind::write, count, time);
    if (!rate) return tl::unexpected(rate.error());
    const auto other = fio_rate(plan, row.block, read, count);
    if (!other) return tl::unexpected(other.error());
    if (!measured) continue;
    (read ? row.read : row.write).add(rate->gb_per_s);
    (read ? row.read_cpu : row.write_cpu).add(rate->cpu_us);
    (read ? row.fio_read : row.fio_write).add(*other);
    (read ? row.read_percent : row.write_percent)
        .add(*other > 0 ? 100 * rate->gb_per_s / *other : 0);
  }
  return {};
}

// A file of this command, an empty one, or none.
result<void> check_scratch(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path, ignored);
  if (!std::filesystem::is_regular_file(status)) return {};  // open_block_file says what it is
  std::string head(ssd_mark.size(), '\0');
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return fail(errc::io, fmt::format("{}: {}", path, std::strerror(errno)));
  const auto got = std::fread(head.data(), 1, head.size(), file);
  std::fclose(file);
  if (got == 0 || head == ssd_mark) return {};
  return fail(errc::invalid_argument,
              fmt::format("{} holds bytes that are not this command's; name another file", path));
}

result<void> write_mark(block_file& file, std::span<std::byte> memory) {
  std::memset(memory.data(), 0, 4096);
  std::memcpy(memory.data(), ssd_mark.data(), ssd_mark.size());
  const io_piece piece{memory.data(), 4096};
  int answer = -1;
  file_io io;
  io.what = file_io::kind::write;
  io.pieces = {&piece, 1};
  io.owner = &answer;
  io.on_done = [](file_io& done, int error) noexcept { *static_cast<int*>(done.owner) = error; };
  file.submit(io);
  while (answer < 0)
    file.poll(std::chrono::milliseconds(100));
  if (answer != 0) return fail(errc::io, fmt::format("write: {}", std::strerror(answer)));
  return {};
}

std::string backend_line(const opened_file& opened) {
  return fmt::format("{}, {} registered buffers{}{}", opened.file->backend(),
                     opened.registered_buffers, opened.why_not.empty() ? "" : "; ", opened.why_not);
}

void print_ssd(const ssd_plan& plan, const opened_file& opened, const std::vector<ssd_row>& rows) {
  std::vector<std::vector<std::string>> cells{
      {"block", "write GB/s", "fio", "ratio", "CPU us", "read GB/s", "fio", "ratio", "CPU us"}};
  boost::json::array list;
  for (const auto& row : rows) {
    cells.push_back({format_bytes(row.block), fmt::format("{:.2f}", row.write.median()),
                     fmt::format("{:.2f}", row.fio_write.median()),
                     fmt::format("{:.0f} %", row.write_percent.median()),
                     fmt::format("{:.1f}", row.write_cpu.median()),
                     fmt::format("{:.2f}", row.read.median()),
                     fmt::format("{:.2f}", row.fio_read.median()),
                     fmt::format("{:.0f} %", row.read_percent.median()),
                     fmt::format("{:.1f}", row.read_cpu.median())});
    list.push_back(boost::json::object{{"block_bytes", row.block},
                                       {"write_gb_per_s", row.write.median()},
                                       {"fio_write_gb_per_s", row.fio_write.median()},
                                       {"write_percent_of_fio", row.write_percent.median()},
                                       {"write_cpu_us", row.write_cpu.median()},
                                       {"read_cpu_us", row.read_cpu.median()},
                                       {"read_gb_per_s", row.read.median()},
                                       {"fio_read_gb_per_s", row.fio_read.median()},
                                       {"read_percent_of_fio", row.read_percent.median()}});
  }
  if (plan.json) {
    const boost::json::object document{{"command", "bench ssd"},
                                       {"machine", machine_json()},
                                       {"file_bytes", plan.bytes},
                                       {"depth", plan.depth},
                                       {"rounds", plan.rounds},
                                       {"backend", backend_line(opened)},
                                       {"rows", list}};
    fmt::print("{}\n", boost::json::serialize(document));
    return;
  }
  fmt::print("{}\n{}; fio's buffers: {}\nfile of {}, depth {}, {} rounds\n\n{}\n", machine_shape(),
             backend_line(opened), fio_memory(plan, rows.back().block), format_bytes(plan.bytes),
             plan.depth, plan.rounds, format_table(cells));
}

result<void> run_ssd_plan(const ssd_plan& plan) {
  if (auto installed = output_of({"fio", "--version"}); !installed) {
    return tl::unexpected(std::move(installed.error()));
  }
  if (auto ours = check_scratch(plan.path); !ours) return ours;
  const auto largest = *std::max_element(plan.block_sizes.begin(), plan.block_sizes.end());
  if (largest > (plan.bytes - mark_bytes) / 2) {
    return fail(errc::invalid_argument, "--size holds fewer than two blocks of --block-size");
  }
  const auto buffer = huge_buffer::create(plan.depth * largest);
  if (!buffer) return tl::unexpected(buffer.error());
  const std::span<std::byte> regions[] = {buffer->bytes()};
  open_options how;
  how.bytes = plan.bytes;
  how.backend = plan.backend;
  how.depth = plan.records ? 2 * plan.depth : plan.depth;  // operations
  how.threads = plan.depth;
  if (plan.registered) how.regions = regions;
  auto opened = open_block_file(plan.path, how);
  if (!opened) return tl::unexpected(std::move(opened.error()));
  if (auto marked = write_mark(*opened->file, buffer->bytes()); !marked) return marked;
  const system_clock time;
  std::vector<ssd_row> rows;
  {
    progress bar("ssd rounds", plan.block_sizes.size() * (plan.rounds + 1), time, plan.quiet);
    for (const auto block : plan.block_sizes) {
      ssd_row row;
      row.block = block;
      ssd_pass pass(*opened->file, buffer->bytes(), block, plan.depth, plan.records);
      for (std::size_t i = 0; i <= plan.rounds; ++i) {
        if (auto done = ssd_round(plan, pass, row, time, i > 0); !done) return done;
        bar.advance(1);
      }
      rows.push_back(std::move(row));
    }
  }
  print_ssd(plan, *opened, rows);
  return {};
}

}  // namespace

int bench_ssd(std::span<const std::string> args) {
  try {
    const auto given = parse_bench_options(ssd_command, ssd_purpose, ssd_options, args);
    if (!given.values) return given.status;
    const auto plan = ssd_plan_from(*given.values);
    if (plan.path.empty()) {
      fmt::print(stderr, "kvd {}: --path is required: the file to write and read\n", ssd_command);
      return bench_usage;
    }
    if (auto done = run_ssd_plan(plan); !done) return bench_error(ssd_command, done.error());
    return bench_ok;
  } catch (const std::exception& thrown) {
    return bench_error(ssd_command, {errc::internal, thrown.what()});
  }
}

}  // namespace kvd
