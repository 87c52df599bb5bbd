// The engines' half of ssd_server: what they ask of the server, and what they check of its answers.

#include <algorithm>

#include <caf/send.hpp>
#include <doctest/doctest.h>

#include "tests/sim/ssd_server.hpp"

using namespace std::chrono_literals;
using kvd::test::plane_fixture;

namespace kvd::sim {

namespace {

// Blocks of an engine: the first ones are saved from, the others loaded into, a slot at a time.
constexpr std::uint32_t run_max = 8;
constexpr std::uint32_t load_slots = 3;
constexpr std::uint32_t blocks = run_max * (1 + load_slots);

int space_of(int who) {
  return who % namespaces;
}

// Prompts that begin alike are what a cache lives on.
int some_first(seeded_random& random) {
  return static_cast<int>(random.below((hash_count - run_max) / 4) * 4);
}

std::span<std::byte> words_at(const std::shared_ptr<test::heap_memory>& tensor, std::size_t block,
                              int kv) {
  const auto plane = static_cast<std::size_t>(kv) * blocks;
  return {tensor->data() + (plane + block) * segment, segment};
}

}  // namespace

void ssd_server::act() {
  const auto who = static_cast<int>(below(engine_count));
  const auto first = some_first(story_.random);
  switch (below(20)) {
  case 0:
  case 1: start(who); break;
  case 2:
  case 3:
  case 4: save(who, first, static_cast<std::uint32_t>(1 + below(run_max))); break;
  case 5:
  case 6: ask_new(who); break;
  case 7:
  case 8: ask_again(); break;
  case 9:
  case 10:
  case 11: copy_one(); break;
  case 12: world_.step(); break;
  case 13: world_.run(10000); break;
  case 14:
  case 15:
  case 16:
    for (auto rounds = 1 + below(4); rounds > 0; --rounds)
      round(below(disks_.size()));
    break;
  case 17: leap(); break;
  case 18: ask_new(who); break;
  default:
    if (below(8) == 0) die(who);
    if (below(16) == 0) caf::anon_send(cache_, message::cleanup_memory{{}});
    break;
  }
  settle();
}

void ssd_server::leap() {
  const duration by = below(20) == 0 ? duration(320s) : duration(std::chrono::seconds(below(3)));
  advance(by);
}

void ssd_server::copy_one() {
  if (at_.copier.queued() == 0) return;
  if (below(10) == 0) at_.copier.script(below(2) == 0 ? copy_script::fail : copy_script::cancel);
  at_.copier.run(below(at_.copier.queued()));
}

void ssd_server::start(int who) {
  auto& mine = engines_[who];
  if (mine.registered) return;
  mine = {};
  mine.token = ++tokens_;
  mine.slots.resize(load_slots);
  caf::anon_send(engine_, message::session_opened{name(who), mine.token});
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    register_rank(who, rank);
  mine.registered = true;
  const auto of = at_.instances.find(name(who));
  REQUIRE(of);
  story_.learn(space_of(who), at_.store->scope_of(of->scopes[0]).fingerprint);
}

void ssd_server::register_rank(int who, std::uint32_t rank) {
  pegaflow::RegisterContextRequest request;
  request.set_instance_id(name(who));
  request.set_namespace_(space_name(space_of(who)));
  request.set_device_id(static_cast<std::int32_t>(rank));
  request.set_tp_rank(rank);
  request.set_tp_size(ranks);
  request.set_world_size(ranks);
  for (int layer = 0; layer < layers; ++layer) {
    request.add_layer_names("layer." + std::to_string(layer));
    request.add_wrapper_bytes(std::to_string(2 * segment * blocks));
    request.add_num_blocks(blocks);
    request.add_bytes_per_block(segment);
    request.add_kv_stride_bytes(segment * blocks);
    request.add_segments(2);
  }
  bool answered = false;
  at_.opener.opened.clear();
  caf::anon_send(engine_, message::register_worker{&request, reply<void>([&](result<void> how) {
                                                     answered = true;
                                                     CHECK(how);
                                                   })});
  world_.run(10000);
  REQUIRE(answered);
  engines_[who].tensors.push_back(at_.opener.opened);
}

// Either the session breaks, or the engine says goodbye.
void ssd_server::die(int who) {
  auto& mine = engines_[who];
  if (!mine.registered) return;
  mine.registered = false;
  if (below(2) == 0) {
    caf::anon_send(engine_, message::session_closed{name(who), mine.token});
    return;
  }
  ++unregisters_;
  caf::anon_send(engine_, message::unregister{
                              name(who), reply<void>([this](result<void>) { ++unregistered_; })});
}

void ssd_server::save(int who, int first, std::uint32_t count) {
  auto& mine = engines_[who];
  const auto of = at_.instances.find(name(who));
  if (!mine.registered || !of || mine.saving > 0) return;
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < count; ++i) {
    ids.push_back(i);
    const auto block = name_of(space_of(who), first + static_cast<int>(i));
    if (below(4) == 0 || story_.versions[block] == 0) ++story_.versions[block];
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (int layer = 0; layer < layers; ++layer) {
        for (int kv = 0; kv < 2; ++kv)
          write_words(words_at(mine.tensors[rank][layer], i, kv), block, rank, layer, kv,
                      story_.versions[block]);
      }
    }
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    auto running = operation::begin(of);
    if (!running) return;
    auto& fresh = *saves_.emplace_back(std::make_unique<pending_save>());
    fresh.who = who;
    fresh.token = mine.token;
    fresh.request =
        plane_fixture::save_request(name(who), static_cast<int>(rank), rank, layers, first, ids);
    ++mine.saving;
    at_.saves.start(std::move(*running), fresh.request, fresh.answer);
  }
}

void ssd_server::ask_new(int who) {
  const auto& mine = engines_[who];
  if (!mine.registered) return;
  pending_query fresh;
  fresh.who = who;
  fresh.token = mine.token;
  fresh.first = some_first(story_.random);
  fresh.request.set_instance_id(name(who));
  // Two requests of one id are a client's mistake, and nobody else's harm.
  const bool twice = below(10) == 0;
  if (!twice) ++requests_;
  fresh.request.set_req_id("r" + std::to_string(requests_));
  if (twice) used_twice_.insert(fresh.request.req_id());
  fresh.request.set_wait_for_full_prefix(below(4) == 0);
  const test::hashes names(fresh.first, static_cast<int>(1 + below(run_max)));
  for (const auto* hash : names.list())
    fresh.request.add_block_hashes(*hash);
  if (ask(fresh)) queries_open_.push_back(std::move(fresh));
}

// True when the answer is Loading.
bool ssd_server::ask(const pending_query& of) {
  const auto& mine = engines_[of.who];
  if (!mine.registered || mine.token != of.token) return false;  // its client is gone
  auto running = operation::begin(at_.instances.find(name(of.who)));
  REQUIRE(running);
  pegaflow::QueryResponse answer;
  const auto outcome = queries_->query(running->of(), of.request, answer);
  REQUIRE(outcome);
  if (answer.has_loading()) {
    ++seen_.loadings;
    return true;
  }
  REQUIRE(answer.has_ready());
  load(of, answer.ready());
  return false;
}

// One of those who were told Loading; a few never ask again.
void ssd_server::ask_again() {
  if (queries_open_.empty()) return;
  auto next = std::move(queries_open_.front());
  queries_open_.pop_front();
  if (below(12) > 0 && ask(next)) queries_open_.push_back(std::move(next));
}

void ssd_server::load(const pending_query& of, const pegaflow::QueryReady& ready) {
  auto& mine = engines_[of.who];
  if (ready.num_hit_blocks() == 0) return;
  const auto free = std::find(mine.slots.begin(), mine.slots.end(), false);
  if (free == mine.slots.end() || below(8) == 0) {  // sometimes a lease is forgotten
    if (below(2) == 0) CHECK(at_.leases->release(ready.lease()));
    return;
  }
  const auto slot = static_cast<std::size_t>(free - mine.slots.begin());
  std::vector<std::uint32_t> targets;
  std::vector<int> names;
  for (std::uint32_t i = 0; i < ready.num_hit_blocks(); ++i) {
    targets.push_back(static_cast<std::uint32_t>(run_max * (1 + slot)) + i);
    names.push_back(name_of(space_of(of.who), of.first + static_cast<int>(i)));
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    auto running = operation::begin(at_.instances.find(name(of.who)));
    REQUIRE(running);
    auto& fresh = *loads_.emplace_back(std::make_unique<pending_load>());
    fresh.who = of.who;
    fresh.rank = rank;
    fresh.token = of.token;
    fresh.slot = slot;
    fresh.tensors = mine.tensors[rank];
    fresh.names = names;
    mine.slots[slot] = true;
    const auto request = plane_fixture::load_request(name(of.who), static_cast<int>(rank), layers,
                                                     ready.lease(), targets);
    CHECK(at_.loads.start(std::move(*running), request, *load_state::attach(fresh.flag.name())));
  }
}

// Looks at what has ended since.
void ssd_server::settle() {
  std::erase_if(saves_, [this](const auto& each) {
    if (!each->answer.outcome) return false;
    auto& mine = engines_[each->who];
    if (mine.token == each->token) --mine.saving;
    return true;
  });
  std::erase_if(loads_, [this](const auto& each) {
    if (each->flag.state() == 0) return false;
    if (each->flag.state() == 1) compare(*each);
    return true;
  });
  for (auto& [who, mine] : engines_) {
    for (std::size_t slot = 0; slot < mine.slots.size(); ++slot) {
      mine.slots[slot] = std::any_of(loads_.begin(), loads_.end(), [&](const auto& each) {
        return each->who == who && each->token == mine.token && each->slot == slot;
      });
    }
  }
}

// Every word is of the block that was asked for, of one version of it, and that was once saved.
void ssd_server::compare(const pending_load& done) {
  for (std::size_t i = 0; i < done.names.size(); ++i) {
    const auto block = run_max * (1 + done.slot) + i;
    std::uint32_t version = 0;
    for (int layer = 0; layer < layers; ++layer) {
      for (int kv = 0; kv < 2; ++kv) {
        const auto found = version_of(words_at(done.tensors[layer], block, kv), done.names[i],
                                      done.rank, layer, kv);
        REQUIRE_MESSAGE(found > 0, "wrong bytes were loaded");
        const bool same = version == 0 || version == found;
        REQUIRE_MESSAGE(same, "two versions in one part");
        version = found;
      }
    }
    REQUIRE(version <= story_.versions[done.names[i]]);
    ++seen_.blocks_compared;
  }
}

}  // namespace kvd::sim
