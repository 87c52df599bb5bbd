#include "cli/server.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <doctest/doctest.h>

#include "cli/server_options.hpp"
#include "memory/eviction_policy.hpp"

namespace kvd {
namespace {

using words = std::vector<std::string>;
using variables = std::vector<environment_variable>;

// Files by path; nothing touches the disk.
struct fake_files {
  std::map<std::string, text_file> files;
  file_reader reader() const {
    return [this](const std::string& path) -> result<text_file> {
      const auto found = files.find(path);
      if (found == files.end()) return fail(errc::io, "'" + path + "': No such file or directory");
      return found->second;
    };
  }
};

server_plan plan(const words& arguments, const variables& environment = {},
                 const fake_files& files = {}) {
  return plan_server(arguments, environment, files.reader());
}

bool mentions(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&part](const std::string& text) {
    return text.find(part) != std::string::npos;
  });
}

TEST_CASE("without any option the server has PegaFlow's defaults") {
  const auto p = plan({});
  CHECK(p.found.errors.empty());
  CHECK(p.found.warnings.empty());
  const auto& o = p.options;
  CHECK(o.addr == "127.0.0.1:50055");
  CHECK(o.http_addr == "0.0.0.0:9091");
  CHECK(o.pool_bytes == std::uint64_t{30} << 30);
  CHECK(o.hint_value_bytes == 0);
  CHECK_FALSE(o.use_hugepages);
  CHECK_FALSE(o.enable_lfu_admission);
  CHECK_FALSE(o.disable_numa_affinity);
  CHECK_FALSE(o.blockwise_alloc);
  CHECK(o.enable_prometheus);
  CHECK(o.metrics_otel_endpoint.empty());
  CHECK(o.metrics_period == std::chrono::seconds(10));
  CHECK(o.log_level == log::level::info);
  CHECK(o.hll_windows == std::vector<std::chrono::seconds>{std::chrono::minutes(15),
                                                           std::chrono::hours(1),
                                                           std::chrono::hours(24)});
  CHECK(o.hll_bucket_bits == 16);
  CHECK(o.trace_sample_rate == 1.0);
  CHECK(o.pool_shards == 1);
  CHECK(o.ssd_cache_capacity_bytes == std::uint64_t{512} << 30);
  CHECK(o.ssd_cache_shards == 1);
  CHECK(o.ssd_write_queue_depth == 8);
  CHECK(o.ssd_prefetch_queue_depth == 2);
  CHECK(o.ssd_write_inflight == 2);
  CHECK(o.ssd_prefetch_inflight == 16);
  CHECK(o.max_prefetch_blocks == 800);
  CHECK(o.qps_per_peer == 2);
  CHECK(o.metaserver_queue_depth == 4096);
  CHECK(o.transfer_lock_timeout == std::chrono::seconds(120));
  CHECK(o.lease_ttl == limits::lease_ttl_default);
  CHECK(o.drain_timeout == std::chrono::seconds(30));
}

TEST_CASE("the default eviction policy of the table is the one that memory picks") {
  const auto by_default = make_eviction_policy("");
  REQUIRE(by_default);
  CHECK(plan({}).options.eviction_policy == (*by_default)->name());
  for (const auto name : find_option(server_option_table(), "eviction-policy")->choices) {
    CAPTURE(name);
    CHECK(make_eviction_policy(name));
  }
}

TEST_CASE("every flag reaches its field") {
  const auto p = plan({"--addr",
                       "[::1]:0",
                       "--http-addr=localhost:81",
                       "--pool-size",
                       "1.5 GB",
                       "--hint-value-size=2mb",
                       "--use-hugepages",
                       "--enable-lfu-admission",
                       "--disable-numa-affinity",
                       "--blockwise-alloc",
                       "--pool-shards",
                       "2",
                       "--copy-threads",
                       "3",
                       "--devices",
                       "0,1",
                       "2",
                       "--log-level",
                       "debug",
                       "--no-enable-prometheus",
                       "--metrics-otel-endpoint",
                       "http://127.0.0.1:4317",
                       "--metrics-period-secs",
                       "5",
                       "--metric-hll-windows",
                       "90s,24h",
                       "--metric-hll-bucket-bits",
                       "4",
                       "--trace-sample-rate",
                       "0.25",
                       "--lease-ttl-secs",
                       "2m",
                       "--drain-timeout-secs",
                       "0"});
  CHECK(p.found.errors == std::vector<std::string>{});
  const auto& o = p.options;
  CHECK(o.addr == "[::1]:0");
  CHECK(o.http_addr == "localhost:81");
  CHECK(o.pool_bytes == std::uint64_t{3} << 29);
  CHECK(o.hint_value_bytes == std::uint64_t{2} << 20);
  CHECK(o.use_hugepages);
  CHECK(o.enable_lfu_admission);
  CHECK(o.disable_numa_affinity);
  CHECK(o.blockwise_alloc);
  CHECK(o.pool_shards == 2);
  CHECK(o.copy_threads == 3);
  CHECK(o.devices == std::vector<int>{0, 1, 2});
  CHECK(o.log_level == log::level::debug);
  CHECK_FALSE(o.enable_prometheus);
  CHECK(o.metrics_otel_endpoint == "http://127.0.0.1:4317");
  CHECK(o.metrics_period == std::chrono::seconds(5));
  CHECK(o.hll_windows ==
        std::vector<std::chrono::seconds>{std::chrono::seconds(90), std::chrono::hours(24)});
  CHECK(p.values.at("metric-hll-windows").text == "90s,1d");
  CHECK(o.hll_bucket_bits == 4);
  CHECK(o.trace_sample_rate == 0.25);
  CHECK(o.lease_ttl == std::chrono::seconds(120));
  CHECK(o.drain_timeout == std::chrono::seconds(0));
}

TEST_CASE("a switch is set by its name, by =false and by --no") {
  CHECK(plan({"--enable-prometheus"}).options.enable_prometheus);
  CHECK_FALSE(plan({"--enable-prometheus=false"}).options.enable_prometheus);
  CHECK_FALSE(plan({"--enable-prometheus", "false"}).options.enable_prometheus);
  CHECK_FALSE(plan({"--no-enable-prometheus"}).options.enable_prometheus);
  CHECK(plan({"--use-hugepages=true"}).options.use_hugepages);
  CHECK_FALSE(plan({"--no-use-hugepages"}).options.use_hugepages);
  CHECK(mentions(plan({"--no-use-hugepages=true"}).found.errors, "takes no value"));
  CHECK(mentions(plan({"--use-hugepages", "--no-use-hugepages"}).found.errors, "given 2 times"));
}

TEST_CASE("flag beats KVD_ variable beats RUST_LOG beats file") {
  const fake_files files{
      {{"k.toml", {"[server]\nlog-level = 'error'\npool-size = '1gb'\n", false}}}};
  const variables rust{{"RUST_LOG", "warn,pegaflow_core=debug"}};
  const variables both{{"RUST_LOG", "warn"}, {"KVD_LOG_LEVEL", "debug"}};
  CHECK(plan({"--config", "k.toml"}, {}, files).options.log_level == log::level::error);
  const auto with_rust = plan({"--config", "k.toml"}, rust, files);
  CHECK(with_rust.options.log_level == log::level::warn);
  CHECK(with_rust.values.at("log-level").source == "environment RUST_LOG");
  CHECK(with_rust.options.pool_bytes == std::uint64_t{1} << 30);
  CHECK(with_rust.values.at("pool-size").source == "k.toml:3 pool-size");
  CHECK(plan({"--config", "k.toml"}, both, files).options.log_level == log::level::debug);
  CHECK(plan({"--config=k.toml", "--log-level=trace"}, both, files).options.log_level ==
        log::level::trace);
}

TEST_CASE("the file is found through the environment, and a flag picks another one") {
  const fake_files files{{{"a.toml", {"[server]\npool-shards = 2\n", false}},
                          {"b.toml", {"[server]\npool-shards = 3\n", false}}}};
  const variables env{{"KVD_CONFIG", "a.toml"}};
  CHECK(plan({}, env, files).options.pool_shards == 2);
  CHECK(plan({"--config", "b.toml"}, env, files).options.pool_shards == 3);
  CHECK(mentions(plan({"--config", "c.toml"}, env, files).found.errors,
                 "--config: 'c.toml': No such file or directory"));
}

TEST_CASE("RUST_LOG gives its first plain level, and what it says to others is ignored") {
  const auto level = [](const char* text) {
    return plan({}, variables{{"RUST_LOG", text}}).options.log_level;
  };
  CHECK(level("debug") == log::level::debug);
  CHECK(level("pegaflow_core=trace, WARN ,error") == log::level::warn);
  const auto none = plan({}, variables{{"RUST_LOG", "pegaflow_core=trace,off"}});
  CHECK(none.found.errors.empty());
  CHECK(mentions(none.found.warnings, "environment RUST_LOG"));
  CHECK(none.options.log_level == log::level::info);
}

TEST_CASE("all mistakes of all layers are reported at once, each by its source") {
  const fake_files files{{{"k.toml",
                           {"[server]\npool-size = '-5'\nlog-levle = 'info'\n"
                            "[sever]\n[router]\n[metaserver]\n",
                            false}}}};
  const auto p = plan({"--pool-szie", "30gb", "--addr", "localhost", "--config", "k.toml", "stray",
                       "--no-blockwise-aloc", "--copy-threads"},
                      {{"KVD_POOL_SZE", "1"}, {"KVD_DEVICES", "0,x"}}, files);
  const auto& e = p.found.errors;
  CHECK(mentions(e, "'--pool-szie': unknown flag; did you mean --pool-size?"));
  CHECK(mentions(e, "'--no-blockwise-aloc': unknown flag; did you mean --no-blockwise-alloc?"));
  CHECK(mentions(e, "--addr: 'localhost': the port is missing"));
  CHECK(mentions(e, "'stray': unexpected argument"));
  CHECK(mentions(e, "--copy-threads: needs a value (COUNT)"));
  CHECK(mentions(p.found.warnings,
                 "environment KVD_POOL_SZE: no option has this name; did you mean KVD_POOL_SIZE?"));
  CHECK(mentions(e, "environment KVD_DEVICES: 'x' is no device number"));
  CHECK(mentions(e, "k.toml:2 pool-size: '-5' is negative; limits 4kb to 2tb"));
  CHECK(mentions(e, "k.toml:3: key 'log-levle': no option has this name; did you mean log-level?"));
  CHECK(mentions(e, "k.toml:4: section 'sever': no role has this name; did you mean [server]?"));
  CHECK(mentions(e, "k.toml:5: section 'router': this role has not landed"));
  CHECK(e.size() == 10);
  CHECK(start_server(p) == 2);
}

TEST_CASE("the sizes that other servers took for something else are refused with the limit") {
  for (const auto* text :
       {"-5", "0", "50%", "NaN", "inf", "99999999999999999999gb", "3tb", "4095"}) {
    CAPTURE(text);
    const auto p = plan({"--pool-size", text});
    REQUIRE(p.found.errors.size() == 1);
    CHECK(p.found.errors[0].find("--pool-size: ") == 0);
    CHECK(p.found.errors[0].find("4kb to 2tb") != std::string::npos);
  }
  CHECK(mentions(plan({"--pool-size", ""}).found.errors, "--pool-size: the value is empty"));
  CHECK(mentions(plan({"--hint-value-size", "0"}).found.errors, "'0' is outside the limits 1b"));
  CHECK(plan({"--pool-size", "512mb"}).options.pool_bytes == std::uint64_t{512} << 20);
}

TEST_CASE("a number in a file that 64 bits cannot hold is refused, not cut") {
  for (const auto* text : {"99999999999999999999", "-99999999999999999999", "1e400", "nan"}) {
    CAPTURE(text);
    const fake_files files{{{"k.toml", {"[server]\npool-size = " + std::string(text), false}}}};
    const auto p = plan({"--config", "k.toml"}, {}, files);
    REQUIRE(p.found.errors.size() == 1);
    CHECK(p.found.errors[0].find("k.toml:2") == 0);
  }
}

TEST_CASE("a pool that is no multiple of the pool's unit is rounded down, and this is said") {
  const auto p = plan({"--pool-size", "4097"});
  CHECK(p.found.errors.empty());
  CHECK(p.options.pool_bytes == 4096);
  CHECK(mentions(p.found.warnings, "--pool-size: 4097b rounded down to 4kb"));
}

TEST_CASE("windows are named with a unit, at least a minute long, and once") {
  const auto first_error = [](const char* text) {
    const auto p = plan({"--metric-hll-windows", text});
    return p.found.errors.empty() ? std::string() : p.found.errors.front();
  };
  CHECK(first_error("60s,1m30s").find("unknown unit") != std::string::npos);
  CHECK(first_error("24h,1d").find("named twice") != std::string::npos);
  CHECK(first_error("59s").find("60s to 366d") != std::string::npos);
  CHECK(first_error("900").find("lacks its unit") != std::string::npos);
  CHECK(first_error("15m,,1h").find("empty entry") != std::string::npos);
  CHECK(first_error("60500ms").find("whole number of seconds") != std::string::npos);
  CHECK(first_error("60s,1h").empty());
}

TEST_CASE("options of a tier that is off are checked, and said to do nothing") {
  CHECK(plan({"--ssd-write-queue-depth", "9"}).options.ssd_write_queue_depth == 9);
  CHECK(
      mentions(plan({"--ssd-write-queue-depth", "9"}).found.warnings, "without --ssd-cache-path"));
  CHECK(mentions(plan({"--ssd-write-queue-depth", "0"}).found.errors, "limits 1 to 65536"));
  CHECK(mentions(plan({"--nics", "mlx5_0"}).found.warnings, "without --metaserver-addr"));
}

TEST_CASE("metaservers are URLs or addresses, several of them, IPv6 and names too") {
  const auto some = plan({"--metaserver-addr", "http://h:1,[fd00::1]:2", "meta.example:50056",
                          "--addr", "10.0.0.1:1"});
  CHECK(some.found.errors.empty());
  CHECK(some.found.warnings.empty());
  CHECK(some.options.metaserver_addrs ==
        std::vector<std::string>{"h:1", "[fd00::1]:2", "meta.example:50056"});
  CHECK(some.options.peer_links == std::vector<std::string>{"auto"});
  CHECK(mentions(plan({"--metaserver-addr", "https://h:1"}).found.errors, "without TLS"));
  CHECK(mentions(plan({"--metaserver-addr", "h"}).found.errors, "--metaserver-addr"));
  CHECK(mentions(plan({"--metaserver-addr", "0.0.0.0:1"}).found.errors, "cannot be connected to"));
  CHECK(mentions(plan({"--peer-links", "smoke"}).found.errors, "auto, shm, tcp or rdma"));
}

TEST_CASE("an address that other nodes cannot use is a warning, one without a port an error") {
  const auto near = plan({"--metaserver-addr", "http://h:1"});
  CHECK(mentions(near.found.warnings, "other nodes cannot reach 127.0.0.1:50055"));
  const auto told = plan({"--metaserver-addr", "h:1", "--advertise-addr", "node-7:50055"});
  CHECK(told.found.warnings.empty());
  CHECK(told.options.advertise_addr == "node-7:50055");
  CHECK(mentions(plan({"--metaserver-addr", "h:1", "--addr", "10.0.0.1:0"}).found.errors,
                 "has no port that other nodes could be told"));
}

TEST_CASE("options that contradict each other are errors") {
  CHECK(mentions(plan({"--enable-lfu-admission", "--eviction-policy", "arc"}).found.errors,
                 "contradicts --enable-lfu-admission"));
  CHECK(plan({"--enable-lfu-admission", "--eviction-policy", "tinylfu"}).found.errors.empty());
  CHECK(mentions(plan({"--hint-value-size", "2gb", "--pool-size", "1gb"}).found.errors,
                 "more than the whole pool"));
  CHECK(mentions(plan({"--addr", "127.0.0.1:9091"}).found.errors, "give them two ports"));
  CHECK(plan({"--addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}).found.errors.empty());
}

TEST_CASE("the admin token is read once, trimmed, checked, and never shown") {
  const fake_files files{{{"good", {"  s3cret\n", false}},
                          {"open", {"s3cret", true}},
                          {"two", {"a b", false}},
                          {"none", {"\n", false}}}};
  const auto good = plan({"--admin-token-file", "good"}, {}, files);
  CHECK(good.options.admin_token == "s3cret");
  CHECK(good.found.warnings.empty());
  CHECK(describe_effective(good).find("good (set)") != std::string::npos);
  CHECK(describe_effective(good).find("s3cret") == std::string::npos);
  CHECK(good.options.effective_json.find("s3cret") == std::string::npos);
  CHECK(mentions(plan({"--admin-token-file", "open"}, {}, files).found.warnings, "chmod 600"));
  CHECK(mentions(plan({"--admin-token-file", "two"}, {}, files).found.errors, "one token"));
  CHECK(mentions(plan({"--admin-token-file", "none"}, {}, files).found.errors, "one token"));
  CHECK(mentions(plan({"--admin-token-file", "gone"}, {}, files).found.errors, "No such file"));
}

TEST_CASE("--check-config shows every value and its source in columns, and starts nothing") {
  const fake_files files{{{"k.toml", {"[server]\npool-shards = 2\n", false}}}};
  const auto p = plan({"--check-config", "--config", "k.toml", "--pool-size", "64GiB"},
                      {{"KVD_USE_HUGEPAGES", "yes"}}, files);
  const auto text = describe_effective(p);
  std::vector<std::string> lines;
  for (std::size_t from = 0; from < text.size();) {
    const auto end = text.find('\n', from);
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  // A heading, and every option but --check-config itself.
  CHECK(lines.size() == server_option_table().size());
  const auto value_column = lines.front().find("value");
  const auto source_column = lines.front().find("source");
  const auto row = [&](const std::string& name) {
    const auto found = std::find_if(lines.begin(), lines.end(), [&name](const std::string& line) {
      return line.starts_with(name + ' ');
    });
    REQUIRE(found != lines.end());
    auto value = found->substr(value_column, source_column - value_column);
    value.erase(value.find_last_not_of(' ') + 1);
    return value + '|' + found->substr(source_column);
  };
  CHECK(row("pool-size") == "64gb|--pool-size");
  CHECK(row("use-hugepages") == "true|environment KVD_USE_HUGEPAGES");
  CHECK(row("pool-shards") == "2|k.toml:2 pool-shards");
  CHECK(row("addr") == "127.0.0.1:50055|default");
  CHECK(row("devices") == "-|default");
  CHECK(start_server(p) == 0);
}

TEST_CASE("the effective values as JSON hold every option with its source") {
  const auto p = plan({"--pool-size", "1gb"});
  const auto parsed = boost::json::parse(p.options.effective_json);
  CHECK(parsed.as_object().size() == server_option_table().size());
  CHECK(parsed.at("pool-size").at("value") == "1gb");
  CHECK(parsed.at("pool-size").at("bytes").to_number<std::uint64_t>() == std::uint64_t{1} << 30);
  CHECK(parsed.at("pool-size").at("source") == "--pool-size");
  CHECK(parsed.at("addr").at("source") == "default");
}

TEST_CASE("help names every option with its default") {
  const auto text = server_help();
  for (const auto& spec : server_option_table()) {
    CAPTURE(spec.name);
    CHECK(text.find("--" + std::string(spec.name)) != std::string::npos);
    CHECK_FALSE(spec.help.empty());
    CHECK_FALSE(spec.group.empty());
  }
  CHECK(text.find("30gb is 30 GiB") != std::string::npos);
}

}  // namespace
}  // namespace kvd
