// Pushes known numbers to the collector named on the command line, as the server role pushes its
// own, and exits with 0 once the collector took them. For test_otlp.py.

#include <cstdio>
#include <memory>

#include "actors/metrics.hpp"

int main(int argc, char** argv) {
  using namespace kvd;
  if (argc != 2) {
    std::fputs("usage: kvd_push_metrics http://host:port\n", stderr);
    return 2;
  }
  const auto numbers = std::make_unique<server_metrics>();
  numbers->copy.save_bytes.add(123'456'789'012);
  numbers->copy.save_seconds.observe(.02);
  numbers->copy.save_seconds.observe(.02);
  numbers->copy.save_seconds.observe(1000);
  numbers->store.leases.set(3);
  numbers->rpc.requests[1][0].add(7);
  numbers->rpc.requests[1][3].add(2);
  scrape_extras extras;
  extras.startup_progress = .5;
  extras.namespaces = {{.name = "latin1 \xe9",
                        .resident_bytes = 10,
                        .resident_blocks = 1,
                        .hits = 2,
                        .misses = 3,
                        .saved_blocks = 4}};
  const metrics_exporter exporter(*numbers, [&] { return extras; });
  // A period longer than the test: the one export is that of stop().
  const auto pushing = otlp::exporter::start({.endpoint = argv[1],
                                              .period = std::chrono::hours(1),
                                              .resource = {{"service.instance.id", "test"}}},
                                             [&] { return exporter.collect_for_push(); });
  if (!pushing) {
    std::fprintf(stderr, "%s\n", pushing.error().detail.c_str());
    return 2;
  }
  (*pushing)->stop();
  return (*pushing)->exports().value() == 1 && (*pushing)->failures().value() == 0 ? 0 : 1;
}
