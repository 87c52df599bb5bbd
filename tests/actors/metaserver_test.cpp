// The metaserver role in this process: its actor does the upkeep, its endpoints and metrics say
// what the documents promise.

#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <doctest/doctest.h>

#include "actors/metaserver.hpp"
#include "actors/metaserver_http.hpp"
#include "actors/metaserver_metrics.hpp"
#include "memory/directory_store.hpp"
#include "transport/http/byte_exchange.hpp"

using namespace kvd;
using std::chrono::seconds;

namespace {

constexpr const char* run_id = "67e55044-10b1-426f-9247-bb680e5fe0c8";

struct test_config : caf::actor_system_config {
  test_config() {
    set("scheduler.policy", caf::atom("testing"));
    add_message_types<caf::id_block::kvd>();
  }
};

struct metaserver_fixture {
  fake_clock time;
  metaserver_metrics metrics;
  directory_store store{{.owners_max = 100'000, .id = "d1"}, time};
  test_config config;
  caf::actor_system system{config};
  caf::scheduler::test_coordinator& scheduler =
      dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  metaserver_actor keeper = system.spawn(
      keep_directory,
      metaserver_parts{
          .store = &store, .metrics = &metrics, .time = &time, .sweep_interval = seconds(600)});

  metaserver_fixture() { scheduler.run(); }
  ~metaserver_fixture() {
    caf::anon_send(keeper, message::stop{});
    scheduler.run();
  }
  // Time passes for the directory and for CAF alike.
  void pass(std::chrono::milliseconds by) {
    time.advance(by);
    scheduler.advance_time(by);
    scheduler.run();
  }
  void insert(const char* node, int count) {
    std::vector<std::string> texts;
    std::vector<const std::string*> pointers;
    for (int i = 0; i < count; ++i)
      texts.push_back(std::to_string(i));
    for (const auto& each : texts)
      pointers.push_back(&each);
    REQUIRE(store.heartbeat({node, run_id}));
    REQUIRE(store.insert({node, run_id}, "ns", pointers));
  }
};

}  // namespace

TEST_CASE_FIXTURE(metaserver_fixture, "12: a node that said goodbye is removed within a tick") {
  insert("a:1", 20'000);
  REQUIRE(store.unregister({"a:1", run_id}));
  CHECK(store.usage().owners == 20'000);
  pass(directory_tick);
  CHECK(store.usage().owners == 0);
  CHECK(store.usage().nodes_leaving == 0);
}

TEST_CASE_FIXTURE(metaserver_fixture, "sweeps come by their interval, each once") {
  pass(seconds(599));
  CHECK(store.usage().sweeps == 0);
  pass(seconds(1));
  CHECK(store.usage().sweeps == 1);
  pass(seconds(300));
  CHECK(store.usage().sweeps == 1);
  pass(seconds(300));
  CHECK(store.usage().sweeps == 2);
}

TEST_CASE_FIXTURE(metaserver_fixture, "purging answers with the names, and the blocks go") {
  insert("a:1", 10);
  time.advance(seconds(31));
  insert("b:1", 10);
  std::vector<std::string> names;
  const auto to = [&names](const result<purged_nodes>& outcome) { names = outcome->nodes; };
  caf::anon_send(keeper, message::purge_nodes{reply<purged_nodes>(to)});
  scheduler.run();
  CHECK(names == std::vector<std::string>{"a:1"});
  pass(directory_tick);
  CHECK(store.usage().owners == 10);
}

TEST_CASE_FIXTURE(metaserver_fixture, "docs/metaserver.md has every series with its HELP text") {
  for (auto& method : metrics.rpc.requests)
    method[0].add();
  for (auto& method : metrics.rpc.seconds)
    method.ok.observe(.001);
  std::ifstream page(KVD_SOURCE_DIR "/docs/metaserver.md");
  REQUIRE(page.is_open());
  std::ostringstream text;
  text << page.rdbuf();
  std::set<std::string> names;
  for (const auto& family : metaserver_families(metrics, store.usage(), store.id())) {
    CAPTURE(family.name);
    CHECK(names.insert(family.name).second);
    CHECK(family.help.ends_with("."));
    const char* type = family.type == prometheus::MetricType::Counter     ? "counter"
                       : family.type == prometheus::MetricType::Histogram ? "histogram"
                                                                          : "gauge";
    const auto start = "| `" + family.name + "` | " + type + " | ";
    const auto at = text.str().find(start);
    REQUIRE(at != std::string::npos);
    const auto line = text.str().substr(at, text.str().find('\n', at) - at);
    CHECK(line.ends_with("| " + family.help + " |"));
  }
}
