#include "transport/grpc/otlp_exporter.hpp"

#include <charconv>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <pthread.h>

#include "core/limits.hpp"
#include "core/log.hpp"
#include "otlp_metrics.grpc.pb.h"

namespace kvd::otlp {

namespace {

namespace proto = opentelemetry::proto::collector::metrics::v1;

// Collectors place points by wall time; nothing in kvd is decided by it.
std::uint64_t unix_nanos() {
  const auto now = gpr_now(GPR_CLOCK_REALTIME);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

struct span_of_time {
  std::uint64_t start;  // of the process, as everything is cumulative
  std::uint64_t now;
};

// "http://host:port" or "host:port" to gRPC's target.
result<std::string> parse_endpoint(std::string_view endpoint) {
  const auto wrong = [endpoint](std::string_view why) {
    return fail(errc::invalid_argument,
                fmt::format("OTLP endpoint '{}' {}; write http://127.0.0.1:4317", endpoint, why));
  };
  auto rest = endpoint;
  if (const auto scheme = rest.find("://"); scheme != std::string_view::npos) {
    if (rest.substr(0, scheme) != "http") return wrong("is not http (TLS is not supported)");
    rest.remove_prefix(scheme + 3);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find('/') != std::string_view::npos) return wrong("has a path, which OTLP/gRPC has not");
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong("has no host and port");
  const auto digits = rest.substr(colon + 1);
  std::uint16_t port = 0;
  const auto* last = digits.data() + digits.size();
  const auto [end, failure] = std::from_chars(digits.data(), last, port);
  if (failure != std::errc() || end != last || port == 0)
    return wrong("has no port between 1 and 65535");
  return std::string(rest);
}

template<class Repeated>
void add_attributes(const std::vector<std::pair<std::string, std::string>>& from, Repeated* into) {
  for (const auto& [key, value] : from) {
    auto* added = into->Add();
    added->set_key(key);
    added->mutable_value()->set_string_value(value);
  }
}

void fill_number(const metric& of, const point& from, span_of_time when,
                 proto::NumberDataPoint& into) {
  into.set_start_time_unix_nano(when.start);
  into.set_time_unix_nano(when.now);
  if (of.whole_numbers)
    into.set_as_int(std::llround(from.value));
  else
    into.set_as_double(from.value);
  add_attributes(from.attributes, into.mutable_attributes());
}

void fill_histogram(const point& from, span_of_time when, proto::HistogramDataPoint& into) {
  into.set_start_time_unix_nano(when.start);
  into.set_time_unix_nano(when.now);
  std::uint64_t count = 0;
  for (const auto bucket : from.buckets) {
    into.add_bucket_counts(bucket);
    count += bucket;
  }
  for (const auto bound : from.bounds)
    into.add_explicit_bounds(bound);
  into.set_count(count);
  into.set_sum(from.sum);
  add_attributes(from.attributes, into.mutable_attributes());
}

void fill_metric(const metric& from, span_of_time when, proto::Metric& into) {
  into.set_name(from.name);
  into.set_description(from.description);
  into.set_unit(from.unit);
  for (const auto& each : from.points) {
    switch (from.type) {
    case kind::sum:
      into.mutable_sum()->set_is_monotonic(true);
      into.mutable_sum()->set_aggregation_temporality(proto::AGGREGATION_TEMPORALITY_CUMULATIVE);
      fill_number(from, each, when, *into.mutable_sum()->add_data_points());
      break;
    case kind::gauge:
      fill_number(from, each, when, *into.mutable_gauge()->add_data_points());
      break;
    case kind::histogram:
      into.mutable_histogram()->set_aggregation_temporality(
          proto::AGGREGATION_TEMPORALITY_CUMULATIVE);
      fill_histogram(each, when, *into.mutable_histogram()->add_data_points());
      break;
    }
  }
}

class grpc_exporter final : public exporter {
public:
  grpc_exporter(exporter_options options, std::function<std::vector<metric>()> collect,
                const std::string& target)
      : options_(std::move(options)), collect_(std::move(collect)), started_(unix_nanos()),
        stub_(proto::MetricsService::NewStub(
            grpc::CreateChannel(target, grpc::InsecureChannelCredentials()))) {}
  ~grpc_exporter() override { stop(); }

  void run() {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "kvd-otlp");
      while (wait())
        push();
      push();
    });
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    const std::lock_guard joining(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  const counter& exports() const noexcept override { return exports_; }
  const counter& failures() const noexcept override { return failures_; }

private:
  // False once it is time to stop.
  bool wait() {
    std::unique_lock lock(mutex_);
    return !wake_.wait_for(lock, options_.period, [this] { return stopping_; });
  }

  void push() noexcept {
    try {
      note(send());
    } catch (const std::exception& thrown) {
      note(fmt::format("collecting failed: {}", thrown.what()));
    }
  }

  // Nothing when the collector took it, else why not.
  std::optional<std::string> send() {
    proto::ExportMetricsServiceRequest request;
    auto* resource = request.add_resource_metrics();
    auto* attributes = resource->mutable_resource()->mutable_attributes();
    add_attributes({{"service.name", "kvd"}, {"service.version", KVD_VERSION}}, attributes);
    add_attributes(options_.resource, attributes);
    auto* scope = resource->add_scope_metrics();
    scope->mutable_scope()->set_name("kvd");
    scope->mutable_scope()->set_version(KVD_VERSION);
    const span_of_time when{started_, unix_nanos()};
    for (const auto& each : collect_())
      if (!each.points.empty()) fill_metric(each, when, *scope->add_metrics());

    grpc::ClientContext context;
    // Not less than a second: a short period asks for fresh numbers, not for a hasty collector.
    const auto allowed = std::clamp<std::chrono::milliseconds>(
        options_.period, std::chrono::seconds(1), limits::push_time_max);
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_millis(allowed.count(), GPR_TIMESPAN)));
    proto::ExportMetricsServiceResponse response;
    const auto status = stub_->Export(&context, request, &response);
    if (!status.ok()) return status.error_message();
    if (response.partial_success().rejected_data_points() > 0)
      return fmt::format("the collector rejected {} points: {}",
                         response.partial_success().rejected_data_points(),
                         response.partial_success().error_message());
    return std::nullopt;
  }

  // Counts, and logs when the collector goes away and when it is back.
  void note(const std::optional<std::string>& failure) noexcept {
    (failure ? failures_ : exports_).add();
    if (failure && !failing_)
      log::warn("otlp", "cannot export endpoint={} error={}; kvd goes on trying every {} ms",
                options_.endpoint, *failure, options_.period.count());
    if (!failure && failing_) log::info("otlp", "exports again endpoint={}", options_.endpoint);
    failing_ = failure.has_value();
  }

  const exporter_options options_;
  const std::function<std::vector<metric>()> collect_;
  const std::uint64_t started_;
  const std::unique_ptr<proto::MetricsService::Stub> stub_;
  counter exports_;
  counter failures_;
  bool failing_ = false;  // kvd-otlp's
  std::mutex mutex_;
  bool stopping_ = false;  // GUARDED_BY(mutex_)
  std::condition_variable wake_;
  std::mutex join_mutex_;  // two callers of stop() must not both join
  std::thread thread_;
};

}  // namespace

result<std::unique_ptr<exporter>> exporter::start(exporter_options options,
                                                  std::function<std::vector<metric>()> collect) {
  const auto target = parse_endpoint(options.endpoint);
  if (!target) return tl::unexpected(target.error());
  if (options.period < std::chrono::milliseconds(1))
    return fail(errc::invalid_argument, "the OTLP period must be at least a millisecond");
  try {
    auto started = std::make_unique<grpc_exporter>(std::move(options), std::move(collect), *target);
    started->run();
    return started;
  } catch (const std::exception& thrown) {
    return fail(errc::internal, fmt::format("cannot start the OTLP exporter: {}", thrown.what()));
  }
}

}  // namespace kvd::otlp
