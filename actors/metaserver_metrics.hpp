#pragma once
// What /metrics of the metaserver says: PegaFlow's names, and what an operator lacks there.
// docs/metaserver.md lists them. Pure function over its arguments.

#include <vector>

#include <prometheus/metric_family.h>

#include "core/directory_metrics.hpp"
#include "memory/directory.hpp"

namespace kvd {

// An RPC's series appear with its first call.
std::vector<prometheus::MetricFamily> metaserver_families(const metaserver_metrics& numbers,
                                                          const directory_usage& usage,
                                                          const std::string& directory_id);

}  // namespace kvd
