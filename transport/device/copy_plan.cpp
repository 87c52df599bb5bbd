#include <algorithm>
#include <functional>

#include "transport/device/copy_job.hpp"

namespace kvd {

namespace {

// std::less on pointers is a total order even across allocations; `<` alone is not.
bool reads_before(const copy_range& a, const copy_range& b) {
  if (a.from != b.from) return std::less<>{}(a.from, b.from);
  return std::less<>{}(a.to, b.to);
}

}  // namespace

void plan_copies(copy_job& job) noexcept {
  auto& ranges = job.ranges;
  std::erase_if(ranges, [](const copy_range& range) { return range.bytes == 0; });
  // Clients mostly list blocks in ascending order already.
  if (!std::is_sorted(ranges.begin(), ranges.end(), reads_before)) {
    std::sort(ranges.begin(), ranges.end(), reads_before);
  }
  std::size_t last = 0;
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    auto& tail = ranges[last];
    const auto& range = ranges[i];
    if (tail.from + tail.bytes == range.from && tail.to + tail.bytes == range.to) {
      tail.bytes += range.bytes;
    } else {
      ranges[++last] = range;
    }
  }
  if (!ranges.empty()) ranges.resize(last + 1);
}

}  // namespace kvd
