#include "memory/directory_digest.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace kvd;

namespace {

std::vector<directory_key> keys(int first, int count) {
  std::vector<directory_key> out;
  for (int i = first; i < first + count; ++i)
    out.push_back(key_of("ns", "hash-" + std::to_string(i)));
  return out;
}

bool same(const directory_digest& a, const directory_digest& b) {
  return std::ranges::equal(a.buckets(), b.buckets());
}

}  // namespace

TEST_CASE("a key depends on the namespace and on the hash, and on where one ends") {
  const auto key = key_of("ns", "hash");
  CHECK(key == key_of("ns", "hash"));
  CHECK(key == directory_namespace("ns").key_of("hash"));
  CHECK(key != key_of("ns2", "hash"));
  CHECK(key != key_of("ns", "hash2"));
  CHECK(key_of("ab", "c") != key_of("a", "bc"));
  CHECK(key_of("", "abc") != key_of("abc", ""));
}

TEST_CASE("keys and buckets are what they were: nodes of other versions compute them too") {
  const auto key = key_of("llama", std::string(32, '\x07'));
  CHECK(key.low == 0x233b68a35d06a8e1);
  CHECK(key.high == 0x8f57f5fd86ff94ac);
  CHECK(directory_digest::bucket_of(key) == 573);
  CHECK(directory_digest::term_of({.low = 0xff, .high = 0xabc0'0000'0000'0001}) == 0x4ff);
  CHECK(directory_digest::bucket_of({.low = 0, .high = 0xffc0'0000'0000'0000}) == 1023);
}

TEST_CASE("a digest does not depend on the order, and a removal undoes an addition") {
  auto all = keys(0, 5000);
  directory_digest forward;
  for (const auto& key : all)
    forward.add(key);
  directory_digest backward;
  std::ranges::reverse(all);
  for (const auto& key : all)
    backward.add(key);
  CHECK(same(forward, backward));
  const auto more = keys(5000, 5000);
  for (const auto& key : more)
    forward.add(key);
  CHECK(!same(forward, backward));
  for (const auto& key : more)
    forward.remove(key);
  CHECK(same(forward, backward));
  forward.clear();
  CHECK(same(forward, directory_digest{}));
}

TEST_CASE("one block that differs shows in its bucket and in no other") {
  directory_digest ours;
  directory_digest theirs;
  for (const auto& key : keys(0, 20'000)) {
    ours.add(key);
    theirs.add(key);
  }
  const auto lost = keys(777, 1).front();
  theirs.remove(lost);
  std::set<std::uint32_t> differing;
  for (std::uint32_t i = 0; i < directory_digest::bucket_count; ++i) {
    if (ours.buckets()[i] != theirs.buckets()[i]) differing.insert(i);
  }
  CHECK(differing == std::set{directory_digest::bucket_of(lost)});
}

TEST_CASE("blocks spread evenly over the buckets") {
  std::vector<int> counts(directory_digest::bucket_count);
  for (const auto& key : keys(0, 102'400))
    ++counts[directory_digest::bucket_of(key)];
  CHECK(*std::ranges::min_element(counts) > 50);  // 100 expected, standard deviation 10
  CHECK(*std::ranges::max_element(counts) < 150);
}
