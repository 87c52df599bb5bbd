#pragma once
// The tables of actors/metrics.cpp: which number is exported under which name, and what for.
//
// Rows of one name follow each other and differ in their label. `pushed_as` is PegaFlow's
// OpenTelemetry name (no _total, no unit); nullptr marks an alias, which the push leaves out.

#include <cstdint>
#include <span>

#include "core/server_metrics.hpp"

namespace kvd::names {

enum class kind : std::uint8_t { counter, gauge };

struct number_row {
  const char* name;
  kind type;
  const char* label;  // nullptr: none
  const char* label_value;
  double (*read)(const server_metrics&);  // nullptr: 0, its tier is not part of this process
  const char* pushed_as;
  const char* unit;  // of the push, UCUM
  const char* help;
};

struct histogram_row {
  const char* name;
  const char* label;
  const char* label_value;
  const histogram& (*read)(const server_metrics&);
  const char* pushed_as;
  const char* unit;
  const char* help;
};

// For `read`: a counter or gauge of one part.
template<auto Part, auto... Members>
double read_number(const server_metrics& from) {
  return static_cast<double>(((from.*Part).*....*Members).value());
}

std::span<const number_row> numbers();
std::span<const number_row> sharing_numbers();
std::span<const histogram_row> histograms();

// By engine_method and by gRPC status code.
std::span<const char* const> rpc_methods();
std::span<const char* const> rpc_statuses();

}  // namespace kvd::names
