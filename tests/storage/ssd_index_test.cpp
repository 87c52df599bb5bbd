#include "storage/ssd_index.hpp"

#include <map>
#include <thread>

#include <doctest/doctest.h>

#include "core/random.hpp"

using namespace kvd;

TEST_CASE("the index agrees with a map, through growth and deletion") {
  ssd_index index(99);
  seeded_random random(1);
  std::map<std::uint64_t, record_place> model;
  for (int step = 0; step < 200000; ++step) {
    const auto n = random.below(20000);
    const record_key key{n, n * 3};
    if (random.below(2) == 0) {
      const record_place place{static_cast<std::uint32_t>(random.below(9)),
                               static_cast<std::uint32_t>(step), 1, 2};
      index.insert(key, place);
      model[n] = place;
    } else {
      const auto known = model.find(n);
      const auto offset = known == model.end() ? 0 : known->second.offset;
      const auto segment = known == model.end() ? 0 : known->second.segment;
      CHECK_FALSE(index.erase_if(key, segment + 1, offset));
      CHECK(index.erase_if(key, segment, offset) == (known != model.end()));
      if (known != model.end()) model.erase(known);
    }
  }
  CHECK(index.size() == model.size());
  CHECK(index.record_units() == 2 * model.size());
  for (std::uint64_t n = 0; n < 20000; ++n) {
    const auto known = model.find(n);
    const auto found = index.find({n, n * 3});
    REQUIRE(found.has_value() == (known != model.end()));
    if (found) CHECK(*found == known->second);
  }
}

TEST_CASE("the index costs at most 32 bytes a slot, and three eighths are taken at least") {
  ssd_index index;
  for (std::uint64_t n = 0; n < 100000; ++n)
    index.insert({n, n}, {1, 2, 3, 4});
  CHECK(index.index_bytes() <= index.size() * 32 * 8 / 3);
}

TEST_CASE("any thread may look up while one writes") {
  ssd_index index;
  for (std::uint64_t n = 0; n < 1000; ++n)
    index.insert({n, 0}, {1, 1, 1, 1});
  bool lost = false;
  std::thread reader([&] {
    for (int round = 0; round < 20; ++round) {
      for (std::uint64_t n = 0; n < 1000; ++n)
        lost = lost || !index.contains({n, 0});
    }
  });
  for (std::uint64_t n = 1000; n < 20000; ++n)
    index.insert({n, 0}, {1, 1, 1, 1});
  for (std::uint64_t n = 1000; n < 20000; ++n)
    index.erase_if({n, 0}, 1, 1);
  reader.join();
  CHECK_FALSE(lost);
}
