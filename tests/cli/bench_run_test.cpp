// The bench commands against a real server, on sizes that take no time. What they print is checked
// as JSON; how fast anything was is not.

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.hpp"
#include "cli/bench_copy.hpp"
#include "cli/bench_engine.hpp"
#include "cli/bench_rpc.hpp"
#include "cli/bench_server.hpp"
#include "cli/bench_trace.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"

namespace kvd {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

using bench_command = int (*)(std::span<const std::string>);

// The executable of this build: tests lie in a folder beside it.
std::string kvd_executable() {
  return (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "kvd").string();
}

std::unique_ptr<child_server> small_server(const std::string& pool) {
  const system_clock time;
  auto server =
      child_server::start({kvd_executable(), {"--pool-size", pool, "--copy-threads", "2"}}, time);
  REQUIRE_MESSAGE(server, (server ? std::string() : server.error().detail));
  return std::move(*server);
}

struct finished {
  int status;
  std::string output;
};

// Runs a command of this process with its standard output in a file.
finished run(bench_command command, const std::vector<std::string>& args) {
  std::fflush(stdout);
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int kept = ::dup(STDOUT_FILENO);
  ::dup2(::fileno(file), STDOUT_FILENO);
  const int status = command(args);
  std::fflush(stdout);
  ::dup2(kept, STDOUT_FILENO);
  ::close(kept);
  std::string output;
  std::rewind(file);
  std::array<char, 4096> chunk{};
  for (auto got = chunk.size(); got > 0;) {
    got = std::fread(chunk.data(), 1, chunk.size(), file);
    output.append(chunk.data(), got);
  }
  std::fclose(file);
  return {status, output};
}

json::object run_json(bench_command command, const std::vector<std::string>& args) {
  const auto done = run(command, args);
  REQUIRE(done.status == bench_ok);
  json::error_code code;
  const auto document = json::parse(done.output, code);
  REQUIRE_MESSAGE(!code, done.output);
  REQUIRE(document.is_object());
  return document.get_object();
}

class scratch_file {
public:
  explicit scratch_file(const std::string& content)
      : path_(fs::temp_directory_path() / fmt::format("kvd-bench-{}.jsonl", ::getpid())) {
    std::ofstream(path_) << content;
  }
  ~scratch_file() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  std::string path() const { return path_.string(); }

private:
  fs::path path_;
};

// Prompts that share their beginnings: 40 requests of 1 to 24 blocks.
std::string small_trace() {
  std::string text;
  for (int request = 0; request < 40; ++request) {
    std::string ids;
    for (int block = 0; block <= request * 7 % 24; ++block) {
      ids += fmt::format("{}{}", block == 0 ? "" : ",",
                         block < 4 ? block : 100 * (request % 5) + block);
    }
    text += fmt::format("{{\"timestamp\": {}, \"hash_ids\": [{}]}}\n", request, ids);
  }
  return text;
}

}  // namespace

TEST_CASE("bench copy saves, loads and verifies every block it moved") {
  const auto server = small_server("64mb");
  const auto document =
      run_json(bench_copy, {"--address", server->addresses().grpc, "--block-size", "4kb,64kb",
                            "--bytes", "1mb", "--batch", "256kb", "--rounds", "2", "--layers", "4",
                            "--copy-threads", "2", "--json", "--quiet"});
  const auto& rows = document.at("rows").as_array();
  REQUIRE(rows.size() == 2);
  // 1 MiB a round in three rounds, the one that is not measured included.
  CHECK(rows[0].at("verified_blocks").to_number<int>() == 3 * 256);
  CHECK(rows[1].at("verified_blocks").to_number<int>() == 3 * 16);
  CHECK(rows[1].at("load_gb_per_s").to_number<double>() > 0);
  CHECK(rows[1].at("save_percent_of_memcpy").to_number<double>() > 0);
}

TEST_CASE("bench copy says that a pool is too small for what it saves") {
  const auto server = small_server("16mb");
  const auto done = run(bench_copy, {"--address", server->addresses().grpc, "--block-size", "64kb",
                                     "--bytes", "64mb", "--rounds", "1", "--quiet"});
  CHECK(done.status == bench_failed);
  CHECK(done.output.empty());
}

TEST_CASE("bench rpc finds exactly the stored part of each query while engines save") {
  const auto server = small_server("64mb");
  const auto document =
      run_json(bench_rpc, {"--address", server->addresses().grpc, "--hashes", "200", "--queries",
                           "20", "--hits", "0,50,100", "--save-block-size", "16kb", "--save-batch",
                           "8", "--json", "--quiet"});
  const auto& rows = document.at("rows").as_array();
  REQUIRE(rows.size() == 3);
  CHECK(rows[1].at("hits").to_number<int>() == 100);
  CHECK(rows[2].at("hits").to_number<int>() == 200);
  CHECK(rows[2].at("p99_ms").to_number<double>() >= rows[2].at("p50_ms").to_number<double>());
}

TEST_CASE("bench trace verifies what it loads and reaches the ceiling when nothing is evicted") {
  const auto server = small_server("64mb");
  const scratch_file trace(small_trace());
  const auto document = run_json(bench_trace, {"--address", server->addresses().grpc, "--trace",
                                               trace.path(), "--block-bytes", "16kb", "--layers",
                                               "2", "--engines", "1", "--json", "--quiet"});
  CHECK(document.at("requests").to_number<int>() == 40);
  CHECK(document.at("verified_blocks").to_number<int>() ==
        document.at("loaded_blocks").to_number<int>());
  CHECK(document.at("verified_blocks").to_number<int>() > 0);
  CHECK(document.at("hit_ratio").to_number<double>() ==
        doctest::Approx(document.at("ceiling").to_number<double>()));
}

TEST_CASE("bench trace replays only the first requests when told to") {
  const auto server = small_server("64mb");
  const scratch_file trace(small_trace());
  const auto document =
      run_json(bench_trace, {"--address", server->addresses().grpc, "--trace", trace.path(),
                             "--requests", "7", "--block-bytes", "16kb", "--json", "--quiet"});
  CHECK(document.at("requests").to_number<int>() == 7);
}

TEST_CASE("bytes that changed after the save are found and the layer is named") {
  const auto server = small_server("64mb");
  const system_clock time;
  system_random random;
  bench_engine_options options;
  options.address = server->addresses().grpc;
  options.instance = "one";
  options.name_space = "one";
  options.layers = 2;
  options.blocks = 2;
  options.block_bytes = 8192;
  auto engine = bench_engine::start(options, time, random);
  REQUIRE(engine);
  const std::vector<std::uint32_t> source{0};
  const std::vector<std::uint32_t> target{1};
  const std::vector<std::string> hashes{known_hash(1)};
  (*engine)->fill(0, 1);
  REQUIRE((*engine)->save(source, hashes));
  const auto found = (*engine)->query(hashes);
  REQUIRE(found);
  REQUIRE(found->hits == 1);
  (*engine)->poison(1);
  REQUIRE((*engine)->load(found->lease, target));
  CHECK((*engine)->verify(1, 1));
  (*engine)->tensor()[8192 + 4096 + 17] ^= std::byte{1};  // layer 1, block 1 begins at 12288
  const auto wrong = (*engine)->verify(1, 1);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().detail.find("layer 1 from byte 17 of 4096") != std::string::npos);
}

TEST_CASE("bench commands refuse bad options with exit status 2 and print no result") {
  const struct {
    bench_command command;
    std::vector<std::string> args;
  } wrong[] = {
      {bench_copy, {"--block-size", "100"}},
      {bench_copy, {"--block-size", "64kb", "--layers", "3"}},
      {bench_copy, {"--rounds", "0"}},
      {bench_copy, {"--bytez", "1mb"}},
      {bench_rpc, {"--hits", "101"}},
      {bench_rpc, {"--hashes", "-1"}},
      {bench_trace, {}},
      {bench_trace, {"--trace", "/nonexistent/trace.jsonl"}},
      {bench_trace, {"--trace", "/dev/null"}},
  };
  for (const auto& each : wrong) {
    const auto done = run(each.command, each.args);
    CHECK(done.status == bench_usage);
    CHECK(done.output.empty());
  }
}

TEST_CASE("bench commands say what they do when asked for help") {
  for (const auto command : {bench_copy, bench_rpc, bench_trace}) {
    const auto done = run(command, {"--help"});
    CHECK(done.status == bench_ok);
    CHECK(done.output.starts_with("usage: kvd bench "));
  }
}

}  // namespace kvd
