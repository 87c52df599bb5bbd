#pragma once
// A metaserver's memory inside the test, and links to it whose answers come when the test says so.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "memory/directory_digest.hpp"
#include "transport/directory/directory_link.hpp"

namespace kvd::test {

// What one metaserver knows of one node.
struct fake_directory {
  std::string id = "first life";
  bool ours = true;  // compares; false: as PegaFlow's
  bool reachable = true;
  bool node_known = false;
  bool full = false;
  bool copies_enough = false;                            // of everything
  std::set<std::pair<std::string, std::string>> blocks;  // name, hash
  std::size_t largest_call = 0;
  int heartbeats = 0;
  int farewells = 0;
  int inserts = 0;
  int replaces = 0;

  void restart() {
    blocks.clear();
    node_known = false;
    id += "'";
  }
  directory_digest digest() const {
    directory_digest sum;
    for (const auto& [name, hash] : blocks)
      sum.add(key_of(name, hash));
    return sum;
  }
};

// Answers are put into `tasks` and come in any order that the test runs them in.
class fake_link final : public directory_link {
public:
  using tasks = std::deque<std::function<void()>>;
  fake_link(fake_directory& to, tasks& answers, std::string address)
      : to_(to), answers_(answers), address_(std::move(address)) {}

  const std::string& address() const noexcept override { return address_; }
  void describe(directory_done<directory_facts> done) override {
    later([this, done = std::move(done)] {
      if (!to_.reachable) return done(gone());
      if (!to_.ours) return done(fail(errc::not_configured, "unimplemented"));
      done(directory_facts{to_.id, std::chrono::seconds(30)});
    });
  }
  void heartbeat(directory_done<std::chrono::seconds> done) override {
    later([this, done = std::move(done)] {
      if (!to_.reachable) return done(gone());
      ++to_.heartbeats;
      to_.node_known = true;
      done(std::chrono::seconds(30));
    });
  }
  void farewell(directory_done<void> done) override {
    later([this, done = std::move(done)] {
      if (!to_.reachable) return done(gone());
      ++to_.farewells;
      to_.blocks.clear();
      done({});
    });
  }
  void insert(named_blocks blocks, directory_done<std::vector<std::string>> done) override {
    later([this, blocks = std::move(blocks), done = std::move(done)] {
      if (auto may = changes(blocks.hashes.size()); !may) return done(tl::unexpected(may.error()));
      ++to_.inserts;
      for (const auto& hash : blocks.hashes)
        to_.blocks.emplace(blocks.name, hash);
      done(to_.copies_enough ? blocks.hashes : std::vector<std::string>{});
    });
  }
  void remove(named_blocks blocks, directory_done<void> done) override {
    later([this, blocks = std::move(blocks), done = std::move(done)] {
      if (auto may = changes(blocks.hashes.size()); !may) return done(tl::unexpected(may.error()));
      for (const auto& hash : blocks.hashes)
        to_.blocks.erase({blocks.name, hash});
      done({});
    });
  }
  void compare(std::span<const std::uint64_t> digests,
               directory_done<std::vector<std::uint32_t>> done) override {
    later([this, mine = std::vector(digests.begin(), digests.end()), done = std::move(done)] {
      if (auto may = changes(0); !may) return done(tl::unexpected(may.error()));
      const auto known = to_.digest();
      std::vector<std::uint32_t> differing;
      for (std::uint32_t i = 0; i < mine.size(); ++i)
        if (mine[i] != known.buckets()[i]) differing.push_back(i);
      done(differing);
    });
  }
  void replace(std::vector<std::uint32_t> buckets, std::vector<named_blocks> blocks,
               directory_done<void> done) override {
    later([this, buckets = std::move(buckets), blocks = std::move(blocks), done = std::move(done)] {
      std::size_t count = 0;
      for (const auto& each : blocks)
        count += each.hashes.size();
      if (auto may = changes(count); !may) return done(tl::unexpected(may.error()));
      ++to_.replaces;
      const auto named = [&](const auto& known) {
        const auto bucket = directory_digest::bucket_of(key_of(known.first, known.second));
        return std::find(buckets.begin(), buckets.end(), bucket) != buckets.end();
      };
      std::erase_if(to_.blocks, named);
      for (const auto& each : blocks)
        for (const auto& hash : each.hashes)
          to_.blocks.emplace(each.name, hash);
      done({});
    });
  }
  void locate(named_blocks blocks, bool over_gaps, duration,
              directory_done<located_blocks> done) override {
    later([this, blocks = std::move(blocks), over_gaps, done = std::move(done)] {
      if (!to_.reachable) return done(gone());
      located_blocks found{{address_}, {}};
      for (std::uint32_t i = 0; i < blocks.hashes.size(); ++i) {
        if (to_.blocks.count({blocks.name, blocks.hashes[i]}) > 0) {
          found.runs.push_back({i, 1, {0}});
        } else if (!over_gaps) {
          break;
        }
      }
      done(std::move(found));
    });
  }

private:
  void later(std::function<void()> answer) { answers_.push_back(std::move(answer)); }
  static tl::unexpected<error> gone() { return fail(errc::unavailable, "connection refused"); }
  result<void> changes(std::size_t blocks) {
    to_.largest_call = std::max(to_.largest_call, blocks);
    if (!to_.reachable) return gone();
    if (!to_.node_known) return fail(errc::instance_missing, "unknown node");
    if (to_.full) return fail(errc::limit_exceeded, "the directory is full");
    return {};
  }

  fake_directory& to_;
  tasks& answers_;
  std::string address_;
};

}  // namespace kvd::test
