#include "actors/peer_tier.hpp"

#include <algorithm>

#include "actors/peer_tier_parts.hpp"
#include "core/limits.hpp"

namespace kvd {

peer_tier::peer_tier(const peer_tier_options& how, parts with)
    : options_(how), with_(std::move(with)), queries_(with_.store) {}

peer_tier::~peer_tier() = default;

// -- the query's side, any thread ----------------------------------------------------------------

lower_tier::progress peer_tier::poll(const query_id& id) noexcept {
  const auto found = std::static_pointer_cast<query>(queries_.find(id));
  if (!found) return with_.ssd == nullptr ? progress::none : with_.ssd->poll(id);
  {
    const std::lock_guard lock(found->mutex);
    found->heard_of = with_.time.now();
  }
  bool loading = !found->over.load();
  if (found->on_ssd.load()) {
    const auto part = found->ssd_request();
    if (with_.ssd->poll({id.instance, part, id.group}) == progress::loading) loading = true;
  }
  return loading ? progress::loading : progress::over;
}

brought_up peer_tier::settle(const query_id& id) noexcept {
  const auto found = std::static_pointer_cast<query>(queries_.take(id));
  if (!found) return with_.ssd == nullptr ? brought_up{} : with_.ssd->settle(id);
  brought_up total;
  if (found->on_ssd.load()) {
    const auto part = found->ssd_request();
    total = with_.ssd->settle({id.instance, part, id.group});
  }
  total.peers += queries_.release(*found);
  return total;
}

bool peer_tier::fetch(const query_id& id, scope_id in, hash_list asked,
                      std::span<const block_index> pinned, bool whole) {
  auto at = pinned.size();
  if (with_.ssd != nullptr)
    while (at < asked.size() && with_.ssd->holds(in, *asked[at]))
      ++at;
  const bool nobody_else = at == asked.size() || !with_.directories.anybody_up() ||
                           queries_.size() >= options_.queries_max;
  if (nobody_else) return with_.ssd != nullptr && with_.ssd->fetch(id, in, asked, pinned, whole);
  auto wanted = std::make_shared<query>();
  wanted->instance = id.instance;
  wanted->request = std::string(id.request);
  wanted->group = id.group;
  wanted->in = in;
  wanted->whole = whole;
  for (const auto* hash : asked.subspan(pinned.size()))
    wanted->hashes.push_back(*hash);
  wanted->begun = wanted->heard_of = with_.time.now();
  wanted->deadline = wanted->begun + options_.query_time_max;
  wanted->pins.assign(pinned.begin(), pinned.end());
  if (!queries_.add(wanted)) {
    with_.store.unpin(pinned);  // another poll of the same query was first
    return true;
  }
  with_.post([this, wanted] { begin(wanted); });
  return true;
}

std::vector<peer_tier::report> peer_tier::status() const {
  const std::lock_guard lock(mutex_);
  return reports_;
}

// -- planning ------------------------------------------------------------------------------------

void peer_tier::begin(const shared_query& of) {
  running_.push_back(of);
  const auto& in = with_.store.scope_of(of->in);
  named_blocks wanted{directory_name_of(in), {}};
  std::vector<std::uint32_t> asked;
  for (std::uint32_t i = 0; i < of->hashes.size(); ++i) {
    if (with_.ssd != nullptr && with_.ssd->holds(of->in, of->hashes[i])) continue;
    asked.push_back(i);
    wanted.hashes.push_back(of->hashes[i]);
  }
  with_.directories.locate(std::move(wanted), true, options_.locate_timeout,
                           [this, of, asked = std::move(asked)](result<located_blocks> found) {
                             with_.post([this, of, asked, found = std::move(found)] {
                               plan(of, asked, found ? *found : located_blocks{});
                             });
                           });
}

// Pins what is in RAM already, so that making room does not evict it.
void peer_tier::pin_present(query& of) {
  std::vector<const std::string*> names;
  for (const auto& hash : of.hashes)
    names.push_back(&hash);
  std::vector<block_index> pinned;
  std::vector<std::uint32_t> present;
  with_.store.pin_members(of.in, names, pinned, present);
  queries_.hold(of, pinned, 0);
  of.busy.clear();
  for (const auto position : present)
    of.owners[position].clear();
}

void peer_tier::plan(const shared_query& of, const std::vector<std::uint32_t>& asked,
                     const located_blocks& found) {
  of->planned = true;
  const auto count = of->hashes.size();
  of->nodes = found.nodes;
  of->owners.resize(count);
  of->tried.assign(count, 0);
  for (const auto& run : found.runs)
    for (auto i = run.first; i < run.first + run.count; ++i)
      of->owners[asked[i]] = run.owners;

  // As far as every block comes from somewhere.
  std::vector<const std::string*> ssd_hashes;
  std::vector<std::uint32_t> from_peers;
  std::vector<const std::string*> one(1);
  std::size_t length = 0;
  std::vector<block_index> pinned;
  std::vector<std::uint32_t> ignored;
  for (; length < count; ++length) {
    const auto position = static_cast<std::uint32_t>(length);
    one[0] = &of->hashes[length];
    if (with_.store.pin_members(of->in, one, pinned, ignored) > 0) continue;
    if (!of->owners[length].empty()) {
      from_peers.push_back(position);
    } else if (with_.ssd != nullptr && with_.ssd->holds(of->in, of->hashes[length])) {
      ssd_hashes.push_back(one[0]);
    } else {
      break;
    }
  }
  queries_.hold(*of, pinned, 0);
  if (of->whole && length < count) {
    ssd_hashes.clear();
    from_peers.clear();
  }
  if (!ssd_hashes.empty()) {
    const auto part = of->ssd_request();
    of->on_ssd.store(
        with_.ssd->fetch({of->instance, part, of->group}, of->in, ssd_hashes, {}, false));
  }
  if (!of->cancelled.load()) assign(of, from_peers);
  over_if_nothing_runs(*of);
}

// Asks the best owner of each block that has not failed it.
void peer_tier::assign(const shared_query& of, std::span<const std::uint32_t> positions) {
  const auto now = with_.time.now();
  const auto per_block = with_.store.scope_of(of->in).parts.size();
  const auto most = std::max<std::size_t>(
      1, std::min(options_.blocks_per_transfer, limits::peer_pieces_max / per_block));
  std::map<std::string, std::vector<std::uint32_t>> by_node;
  for (const auto position : positions) {
    const auto& owners = of->owners[position];
    auto& tried = of->tried[position];
    while (tried < owners.size() && now < node_of(of->nodes[owners[tried]]).avoid_until)
      ++tried;
    if (tried < owners.size()) by_node[of->nodes[owners[tried]]].push_back(position);
  }
  for (auto& [name, all] : by_node) {
    auto& who = node_of(name);
    who.used = now;
    for (std::size_t at = 0; at < all.size(); at += most) {
      auto one = std::make_unique<transfer>();
      one->number = ++next_transfer_;
      one->tier = this;
      one->of = of;
      one->from = &who;
      one->begun = now;
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(at);
      one->positions.assign(first,
                            first + static_cast<std::ptrdiff_t>(std::min(most, all.size() - at)));
      ++of->transfers;
      const auto number = one->number;
      auto& started = *transfers_.emplace(number, std::move(one)).first->second;
      if (who.remote) {
        lock(started);
      } else {
        who.waiting.push_back(number);
        greet(who);
      }
    }
  }
}

// -- one node ------------------------------------------------------------------------------------

peer_tier::node& peer_tier::node_of(const std::string& name) {
  auto& found = nodes_[name];
  if (!found) {
    found = std::make_unique<node>();
    found->name = name;
    found->seen.node = name;
    found->calls = with_.connect(name);
    found->used = with_.time.now();
  }
  return *found;
}

void peer_tier::greet(node& who) {
  if (std::exchange(who.greeting, true)) return;
  // The node is not forgotten while it is greeted.
  who.calls->hello([this, &who](result<peer_hello> said) {
    with_.post([this, &who, said = std::move(said)]() mutable { greeted(who, std::move(said)); });
  });
}

void peer_tier::greeted(node& who, result<peer_hello> said) {
  who.greeting = false;
  auto waiting = std::exchange(who.waiting, {});
  std::string why;
  if (said) {
    auto remote = with_.port.open(said->address);
    if (remote) {
      who.remote = std::move(*remote);
      who.seen.link = std::string(name(who.remote->kind()));
      who.seen.trouble.clear();
    } else {
      why = remote.error().detail;
    }
  } else {
    why = said.error().detail;
  }
  for (const auto number : waiting) {
    auto* const one = find(number);
    if (one == nullptr) continue;
    if (who.remote) {
      lock(*one);
    } else {
      fail(*one, why, true);
    }
  }
  publish();
}

// -- upkeep --------------------------------------------------------------------------------------

void peer_tier::forget_instance(std::uint64_t serial) {
  queries_.drop_instance(serial);
}

void peer_tier::tick() {
  const auto now = with_.time.now();
  queries_.drop_idle(now - options_.idle_max);
  const auto running = running_;
  for (const auto& each : running) {
    if (each->transfers == 0) look_again(each);
    if (now >= each->deadline) {
      each->busy.clear();
      each->over.store(true);
    }
    over_if_nothing_runs(*each);
  }
  for (auto& [number, one] : transfers_) {
    const bool unwanted = one->of->cancelled.load() || now >= one->of->deadline;
    if (unwanted && one->reading && !one->done) one->cancel(with_.port);
  }
  std::erase_if(running_, [](const shared_query& each) {
    return each->transfers == 0 && (each->over.load() || each->cancelled.load());
  });
  std::erase_if(nodes_, [&](const auto& each) {
    const auto uses = [&](const auto& running_one) {
      return running_one.second->from == each.second.get();
    };
    return !each.second->greeting && now - each.second->used > options_.forget_after &&
           std::none_of(transfers_.begin(), transfers_.end(), uses);
  });
  publish();
}

void peer_tier::stop_asking() {
  for (auto& each : nodes_)
    each.second->calls.reset();
}

void peer_tier::publish() {
  std::vector<report> now;
  for (const auto& each : nodes_)
    now.push_back(each.second->seen);
  const std::lock_guard lock(mutex_);
  reports_ = std::move(now);
}

}  // namespace kvd
