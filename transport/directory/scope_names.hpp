#pragma once
// By what name the directory knows the blocks of a scope, and by what key its digests count them.
//
// The name holds the layout: a block of another layout is no use to anybody who asks, and is not
// found. Owner: one thread.

#include <string>
#include <string_view>
#include <vector>

#include "memory/block_store.hpp"
#include "memory/directory_digest.hpp"

namespace kvd {

// "<namespace>#<group>-<fingerprint>"; the part behind the last '#' never holds one.
std::string directory_name_of(const scope& of);

class scope_names {
public:
  // `store` outlives it.
  explicit scope_names(const block_store& store) : store_(store) {}

  const std::string& name_of(scope_id in) { return known(in).name; }
  directory_key key_of(scope_id in, std::string_view hash) { return known(in).space.key_of(hash); }

private:
  struct entry {
    std::string name;
    directory_namespace space{""};
  };
  const entry& known(scope_id in);

  const block_store& store_;
  std::vector<entry> entries_;  // by scope; an empty name: not asked for yet
};

}  // namespace kvd
