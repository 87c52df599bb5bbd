#pragma once
// Block hashes as a request carries them: checked once, then used where they lie.

#include <algorithm>

#include <fmt/format.h>
#include <google/protobuf/repeated_ptr_field.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "memory/block_store.hpp"

namespace kvd {

using repeated_bytes = google::protobuf::RepeatedPtrField<std::string>;

inline hash_list as_hash_list(const repeated_bytes& hashes) {
  return {hashes.data(), static_cast<std::size_t>(hashes.size())};
}

// invalid_argument names the position and the limit.
inline result<void> check_hashes(const repeated_bytes& hashes) {
  if (static_cast<std::size_t>(hashes.size()) > limits::hashes_per_query_max) {
    return fail(errc::invalid_argument, fmt::format("{} block_hashes, limit {}", hashes.size(),
                                                    limits::hashes_per_query_max));
  }
  const auto wrong = std::find_if(hashes.begin(), hashes.end(), [](const std::string& hash) {
    return hash.empty() || hash.size() > limits::hash_bytes_max;
  });
  if (wrong != hashes.end()) {
    return fail(errc::invalid_argument,
                fmt::format("block_hashes[{}] has {} bytes; 1 to {} are allowed",
                            wrong - hashes.begin(), wrong->size(), limits::hash_bytes_max));
  }
  return {};
}

}  // namespace kvd
