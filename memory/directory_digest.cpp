#include "memory/directory_digest.hpp"

#include <xxhash.h>

namespace kvd {

directory_namespace::directory_namespace(std::string_view name) noexcept {
  const auto hash = XXH3_128bits(name.data(), name.size());
  name_ = {hash.low64, hash.high64};
}

directory_key directory_namespace::key_of(std::string_view hash) const noexcept {
  // The lower half of the name seeds, the upper half shifts: all 128 bits of it take part.
  const auto key = XXH3_128bits_withSeed(hash.data(), hash.size(), name_.low);
  return {key.low64, key.high64 + name_.high};
}

directory_key key_of(std::string_view name_space, std::string_view hash) noexcept {
  return directory_namespace(name_space).key_of(hash);
}

}  // namespace kvd
