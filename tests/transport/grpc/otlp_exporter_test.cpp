#include "transport/grpc/otlp_exporter.hpp"

#include <condition_variable>
#include <mutex>

#include <doctest/doctest.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "otlp_metrics.grpc.pb.h"

using namespace kvd;
using namespace kvd::otlp;
namespace official = opentelemetry::proto::collector::metrics::v1;

namespace {

// Counts what comes, fails while told to.
class collector final : public official::MetricsService::Service {
public:
  collector() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~collector() override { server_->Shutdown(); }

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }

  grpc::Status Export(grpc::ServerContext*, const official::ExportMetricsServiceRequest* request,
                      official::ExportMetricsServiceResponse*) override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    last_ = *request;
    came_.notify_all();
    return failing_ ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "scripted") : grpc::Status::OK;
  }

  void fail(bool failing) {
    const std::lock_guard lock(mutex_);
    failing_ = failing;
  }
  // Blocks until `more` further exports came.
  void await(unsigned more) {
    std::unique_lock lock(mutex_);
    const auto wanted = calls_ + more;
    came_.wait(lock, [&] { return calls_ >= wanted; });
  }
  official::ExportMetricsServiceRequest last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

private:
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable came_;
  unsigned calls_ = 0;
  bool failing_ = false;
  official::ExportMetricsServiceRequest last_;
  std::unique_ptr<grpc::Server> server_;
};

std::vector<metric> one_gauge() {
  metric out;
  out.name = "g";
  out.points.push_back({.attributes = {{"k", "v"}}, .value = 5, .bounds = {}, .buckets = {}});
  metric empty;
  empty.name = "nothing yet";
  return {out, empty};
}

}  // namespace

TEST_CASE("the exporter pushes every period and once more when it stops") {
  collector target;
  auto pushing = exporter::start(
      {.endpoint = target.endpoint(), .period = std::chrono::milliseconds(5), .resource = {}},
      one_gauge);
  REQUIRE(pushing);
  target.await(3);
  (*pushing)->stop();
  CHECK((*pushing)->exports().value() >= 3);
  CHECK((*pushing)->failures().value() == 0);
  const auto request = target.last();
  const auto& metrics = request.resource_metrics(0).scope_metrics(0);
  REQUIRE(metrics.metrics_size() == 1);  // one without points is left out
  CHECK(metrics.metrics(0).gauge().data_points(0).as_int() == 5);
  (*pushing)->stop();
}

TEST_CASE("a collector that fails is counted, survived, and used again when it is back") {
  collector target;
  target.fail(true);
  auto pushing = exporter::start(
      {.endpoint = target.endpoint(), .period = std::chrono::milliseconds(5), .resource = {}},
      one_gauge);
  REQUIRE(pushing);
  target.await(3);
  CHECK((*pushing)->failures().value() >= 1);
  CHECK((*pushing)->exports().value() == 0);
  target.fail(false);
  target.await(3);
  (*pushing)->stop();
  CHECK((*pushing)->exports().value() >= 1);
}

TEST_CASE("a collection that throws counts as a failure and does not end the exporter") {
  collector target;
  std::atomic<int> rounds = 0;
  auto pushing = exporter::start(
      {.endpoint = target.endpoint(), .period = std::chrono::milliseconds(5), .resource = {}},
      [&rounds]() -> std::vector<metric> {
        if (rounds++ == 0) throw std::runtime_error("scripted");
        return one_gauge();
      });
  REQUIRE(pushing);
  target.await(1);
  (*pushing)->stop();
  CHECK((*pushing)->failures().value() == 1);
}

TEST_CASE("nobody at the endpoint is a counted failure, and stopping still ends") {
  auto pushing = exporter::start(
      {.endpoint = "http://127.0.0.1:1", .period = std::chrono::hours(1), .resource = {}},
      one_gauge);
  REQUIRE(pushing);
  (*pushing)->stop();
  CHECK((*pushing)->failures().value() == 1);
}

TEST_CASE("endpoints that cannot be are refused by name") {
  for (const char* endpoint : {"", "http://", "http://a", "https://a:1", "http://a:0", ":1",
                               "http://a:99999", "http://a:1/v1/metrics", "unix:///tmp/x"}) {
    CAPTURE(endpoint);
    const auto refused = exporter::start(
        {.endpoint = endpoint, .period = std::chrono::hours(1), .resource = {}}, one_gauge);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK(refused.error().detail.find("'" + std::string(endpoint) + "'") != std::string::npos);
  }
}
