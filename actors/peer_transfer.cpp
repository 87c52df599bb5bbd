// One transfer: the lock at its holder, the read, what it brought, and its end.

#include <algorithm>

#include <fmt/format.h>

#include "actors/peer_tier_parts.hpp"
#include "core/limits.hpp"
#include "core/log.hpp"

namespace kvd {

namespace {

// Of the holder's time-out, so that clocks of different pace do no harm: one in so many.
constexpr int lock_margin = 10;

}  // namespace

peer_tier::transfer* peer_tier::find(std::uint64_t number) {
  const auto at = transfers_.find(number);
  return at == transfers_.end() ? nullptr : at->second.get();
}

void peer_tier::lock(transfer& one) {
  const auto& of = *one.of;
  const auto& in = with_.store.scope_of(of.in);
  peer_lock_request request{.boot_id = std::string(one.from->remote->boot_id()),
                            .name_space = in.usage->name,
                            .group = in.group,
                            .fingerprint = in.fingerprint,
                            .hashes = {}};
  for (const auto position : one.positions)
    request.hashes.push_back(of.hashes[position]);
  // The holder's time runs from a later moment.
  one.begun = with_.time.now();
  one.from->calls->lock(std::move(request), options_.lock_timeout,
                        [this, number = one.number](result<peer_lock> said) {
                          with_.post([this, number, said = std::move(said)]() mutable {
                            locked(number, std::move(said));
                          });
                        });
}

void peer_tier::locked(std::uint64_t number, result<peer_lock> said) {
  auto* const one = find(number);
  if (one == nullptr) return;
  if (!said) {
    // It may be another run by now, on another port.
    one->from->remote.reset();
    fail(*one, said.error().detail, said.error().code != errc::instance_missing);
    return;
  }
  one->session = std::move(said->session);
  one->lock_until = one->begun + said->timeout - said->timeout / lock_margin;
  const auto per_block = with_.store.scope_of(one->of->in).parts.size();
  if (said->units.size() != said->positions.size() * per_block) {
    fail(*one, "its lock has another number of parts", true);
    return;
  }
  start_read(*one, *said);
}

void peer_tier::start_read(transfer& one, const peer_lock& granted) {
  auto& of = *one.of;
  const auto& in = with_.store.scope_of(of.in);
  // What it does not hold any more, the next owner may.
  std::vector<std::uint32_t> here;
  std::unordered_map<std::uint32_t, std::size_t> place;
  for (std::size_t i = 0; i < granted.positions.size(); ++i) {
    here.push_back(one.positions[granted.positions[i]]);
    place[here.back()] = i * in.parts.size();
  }
  std::vector<const std::string*> names;
  for (const auto& hash : of.hashes)
    names.push_back(&hash);
  if (!of.cancelled.load() && with_.time.now() < of.deadline) {
    auto claims = claim_whole(with_.store, of.in, names, here);
    one.blocks = std::move(claims.claimed);
    of.busy.insert(of.busy.end(), claims.busy.begin(), claims.busy.end());
  }
  std::uint64_t bytes = 0;
  for (const auto& block : one.blocks) {
    const auto first = place[block.position];
    for (std::size_t part = 0; part < block.parts.size(); ++part) {
      one.pieces.push_back({std::uint64_t{granted.units[first + part]} * limits::pool_unit_bytes,
                            block.parts[part].address, in.parts[part].bytes});
      bytes += in.parts[part].bytes;
    }
  }
  if (one.pieces.empty()) {
    end_transfer(one.number);
    return;
  }
  one.states.resize(one.pieces.size());
  const auto allowed =
      options_.read_time + std::chrono::milliseconds(bytes * 1000 / options_.bytes_per_second_min);
  one.read.pieces = one.pieces;
  one.read.states = one.states;
  one.read.deadline = std::min({with_.time.now() + allowed, one.lock_until, of.deadline});
  one.read.owner = &one;
  one.read.on_done = [](peer_read& read, peer_outcome outcome) noexcept {
    const auto& mine = *static_cast<transfer*>(read.owner);
    mine.tier->with_.post(
        [tier = mine.tier, number = mine.number, outcome] { tier->read_done(number, outcome); });
  };
  one.read.on_released = [](peer_read& read) noexcept {
    auto& mine = *static_cast<transfer*>(read.owner);
    const auto over = [tier = mine.tier, number = mine.number] { tier->read_released(number); };
    const auto& post = mine.tier->with_.post;
    {
      const std::lock_guard lock(mine.ending);
      mine.gone = true;
    }
    post(over);
  };
  one.reading = true;
  if (!with_.port.read(one.from->remote, one.read)) {
    one.done = one.released = true;
    fail(one, "too many reads are under way", false);
  }
}

void peer_tier::take_arrived(transfer& one) {
  auto& of = *one.of;
  const auto per_block = with_.store.scope_of(of.in).parts.size();
  if (with_.time.now() >= one.lock_until) {
    // The holder may have used these slots for something else since.
    with_.metrics.late_blocks.add(one.blocks.size());
    return;
  }
  std::vector<whole_claims::block> missing;
  std::vector<block_index> pinned;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < one.blocks.size(); ++i) {
    const auto states = std::span(one.states).subspan(i * per_block, per_block);
    const bool whole = std::all_of(states.begin(), states.end(),
                                   [](piece_state each) { return each == piece_state::arrived; });
    if (!whole) {
      missing.push_back(std::move(one.blocks[i]));
      continue;
    }
    pinned.push_back(one.blocks[i].parts.front().block);
    of.owners[one.blocks[i].position].clear();
    commit_whole(with_.store, of.in, one.blocks[i].parts);
    for (std::size_t part = 0; part < per_block; ++part)
      bytes += one.pieces[i * per_block + part].bytes;
  }
  one.blocks = std::move(missing);
  with_.metrics.fetched_blocks.add(pinned.size());
  with_.metrics.fetched_bytes.add(bytes);
  one.from->seen.blocks += pinned.size();
  one.from->seen.bytes += bytes;
  queries_.hold(of, pinned, static_cast<std::uint32_t>(pinned.size()));
}

void peer_tier::read_done(std::uint64_t number, peer_outcome outcome) {
  auto* const one = find(number);
  if (one == nullptr) return;
  take_arrived(*one);
  const double took = std::chrono::duration<double>(with_.time.now() - one->begun).count();
  if (outcome == peer_outcome::done && one->blocks.empty()) {
    with_.metrics.fetches_ok.add();
    with_.metrics.fetch_seconds_ok.observe(took);
  } else {
    with_.metrics.fetch_seconds_failed.observe(took);
    // A peer that only took too long for much is not given up, one that is gone is.
    const bool gone = outcome == peer_outcome::link_lost || outcome == peer_outcome::unreachable ||
                      outcome == peer_outcome::timed_out || outcome == peer_outcome::refused;
    if (outcome == peer_outcome::refused) one->from->remote.reset();
    one->done = true;
    fail(*one, name(outcome), gone);
    return;
  }
  one->done = true;
  if (one->released) end_transfer(number);
}

void peer_tier::read_released(std::uint64_t number) {
  auto* const one = find(number);
  if (one == nullptr) return;
  one->released = true;
  if (one->done) end_transfer(number);
}

void peer_tier::fail(transfer& one, std::string_view why, bool avoid) {
  with_.metrics.fetches_failed.add();
  auto& from = *one.from;
  if (from.seen.trouble != why) log::warn("peer", "{}: {}", from.name, why);
  from.seen.trouble = std::string(why);
  if (avoid) from.avoid_until = with_.time.now() + options_.pause;
  if (!one.reading || (one.done && one.released)) end_transfer(one.number);
}

// Nothing of it is on its way: what it did not bring is asked of the next owner.
void peer_tier::end_transfer(std::uint64_t number) {
  const auto at = transfers_.find(number);
  const auto one = std::move(at->second);
  transfers_.erase(at);
  if (!one->session.empty()) one->from->calls->unlock(one->session);
  for (const auto& block : one->blocks)
    with_.store.abandon(block.parts);
  const auto of = one->of;
  --of->transfers;
  const bool claimed = one->reading;  // others may have waited for its blocks
  const bool wanted = !of->cancelled.load() && with_.time.now() < of->deadline;
  std::vector<std::uint32_t> again;
  for (const auto position : one->positions) {
    if (of->owners[position].empty()) continue;  // it is here
    if (std::find(of->busy.begin(), of->busy.end(), position) != of->busy.end()) continue;
    ++of->tried[position];
    again.push_back(position);
  }
  if (wanted) assign(of, again);
  if (claimed) {
    const auto running = running_;
    for (const auto& each : running)
      if (each->transfers == 0) look_again(each);
  }
  over_if_nothing_runs(*of);
  publish();
}

// Blocks that others were copying: they are here by now, or nobody copies them any more.
void peer_tier::look_again(const shared_query& of) {
  if (of->busy.empty()) return;
  const auto positions = of->busy;
  pin_present(*of);
  std::vector<std::uint32_t> absent;
  for (const auto position : positions)
    if (!of->owners[position].empty()) absent.push_back(position);
  if (!of->cancelled.load()) assign(of, absent);
  over_if_nothing_runs(*of);
}

void peer_tier::over_if_nothing_runs(query& of) {
  if (of.planned && of.transfers == 0 && of.busy.empty()) of.over.store(true);
}

}  // namespace kvd
