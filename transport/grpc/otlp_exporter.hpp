#pragma once
// Pushes metrics to an OpenTelemetry collector over OTLP/gRPC, every `period`, cumulative.
//
// One thread, kvd-otlp, collects and sends; nothing else waits for it and nothing in it can end the
// process. A collector that is away costs one log line when it goes and one when it is back, and
// every failed export counts. What is pushed is what `collect` returns at that moment.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/metric.hpp"

namespace kvd::otlp {

enum class kind : std::uint8_t { sum, gauge, histogram };

// One time series. Numbers use `value`; histograms the rest: buckets[i] counts observations up to
// bounds[i] and above the bound before, and there is one bucket more than bounds.
struct point {
  std::vector<std::pair<std::string, std::string>> attributes;
  double value = 0;
  std::vector<double> bounds;
  std::vector<std::uint64_t> buckets;
  double sum = 0;
};

struct metric {
  std::string name;
  std::string description;
  std::string unit;
  kind type = kind::gauge;
  bool whole_numbers = true;  // sent as integers
  std::vector<point> points;
};

struct exporter_options {
  std::string endpoint;  // "http://127.0.0.1:4317"
  std::chrono::milliseconds period{10'000};
  // Of the resource, beside service.name=kvd and service.version.
  std::vector<std::pair<std::string, std::string>> resource;
};

class exporter {
public:
  // errc::invalid_argument names the endpoint if it is no http://host:port. Does not connect yet:
  // a collector may come later. `collect` is called on the exporter's thread.
  [[nodiscard]] static result<std::unique_ptr<exporter>>
  start(exporter_options options, std::function<std::vector<metric>()> collect);
  virtual ~exporter() = default;
  // One last export, then joins the thread. Idempotent.
  virtual void stop() = 0;
  virtual const counter& exports() const noexcept = 0;
  virtual const counter& failures() const noexcept = 0;
};

}  // namespace kvd::otlp
