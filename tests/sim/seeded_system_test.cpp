// The simulator itself: what it promises about seeds, order and time.

#include <set>
#include <string>
#include <utility>

#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <doctest/doctest.h>

#include "tests/sim/seeded_system.hpp"

using namespace kvd;
using namespace std::chrono_literals;

namespace {

// Writes down its letter and the number of every message it gets.
caf::behavior scribe(caf::event_based_actor*, char letter, std::string* record) {
  return {[letter, record](int number) {
    *record += letter;
    *record += static_cast<char>('0' + number);
  }};
}

// Three scribes with three messages each, under one seed.
std::string order_of(std::uint64_t seed) {
  caf::actor_system_config config;
  sim::seeded_system world(seed, config);
  std::string record;
  {
    const auto a = world.actors().spawn(scribe, 'a', &record);
    const auto b = world.actors().spawn(scribe, 'b', &record);
    const auto c = world.actors().spawn(scribe, 'c', &record);
    for (int number = 0; number < 3; ++number) {
      for (const auto& who : {a, b, c})
        caf::anon_send(who, number);
    }
    world.run(100);
  }
  return record;
}

std::string messages_of(char letter, const std::string& record) {
  std::string numbers;
  for (std::size_t i = 0; i + 1 < record.size(); i += 2) {
    if (record[i] == letter) numbers += record[i + 1];
  }
  return numbers;
}

}  // namespace

TEST_CASE("the same seed gives the same run") {
  sim::for_each_seed(20, [](std::uint64_t seed) { CHECK(order_of(seed) == order_of(seed)); });
}

TEST_CASE("seeds reorder actors and never the messages of one sender to one actor") {
  std::set<std::string> orders;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto record = order_of(seed);
    CHECK(record.size() == 18);
    for (const char letter : {'a', 'b', 'c'})
      CHECK(messages_of(letter, record) == "012");
    orders.insert(record);
  }
  CHECK(orders.size() > 10);
}

TEST_CASE("delayed messages arrive when the fake clock says so, and not before") {
  caf::actor_system_config config;
  sim::seeded_system world(1, config);
  std::string record;
  {
    const auto start = world.time().now();
    const auto late = world.actors().spawn(
        [](caf::event_based_actor* self, std::string* out) -> caf::behavior {
          self->delayed_send(self, 10s, 7);
          return scribe(self, 'x', out);
        },
        &record);
    world.run(10);
    world.advance(9s);
    world.run(10);
    CHECK(record.empty());
    world.advance(1s);
    world.run(10);
    CHECK(record == "x7");
    CHECK(world.time().now() - start == 10s);
  }
}
