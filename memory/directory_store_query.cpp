// Where blocks are: the two questions to the directory.

#include <algorithm>
#include <array>
#include <cstddef>

#include "memory/directory_store.hpp"

namespace kvd {

namespace {

// Keys whose memory is asked for together; a prefix that ends early wastes at most these.
constexpr std::size_t query_window = 32;

// What one question found out about a session.
struct session_view {
  std::uint64_t question = 0;  // the one that the rest belongs to
  std::uint32_t length = 0;    // of the prefix that it holds
  std::uint32_t generation = 0;
  std::uint32_t index = 0;  // in the answer, when `named`
  bool visible = false;
  bool named = false;
  time_point seen{};
};

// Views of all sessions, used again by every question on this thread.
class session_views {
public:
  session_views(const directory_sessions& sessions, time_point now)
      : views_(storage()), sessions_(sessions), now_(now), question_(++last_question) {}

  session_view& of(session_index at) {
    auto& view = views_[at];
    if (view.question == question_) return view;
    view = {};
    view.question = question_;
    view.generation = sessions_.generation(at);
    view.seen = sessions_.seen(at);
    view.visible = sessions_.visible(at, now_);
    return view;
  }

private:
  static std::vector<session_view>& storage() {
    static thread_local std::vector<session_view> views(limits::directory_nodes_max);
    return views;
  }
  static thread_local std::uint64_t last_question;

  std::vector<session_view>& views_;
  const directory_sessions& sessions_;
  time_point now_;
  std::uint64_t question_;
};

thread_local std::uint64_t session_views::last_question = 0;

// Calls each(position, key) until it returns false.
template<class Each>
void walk(const directory_table& table, std::string_view name_space, block_hashes hashes,
          Each&& each) {
  const directory_namespace in(name_space);
  std::array<directory_key, query_window> keys;
  for (std::size_t first = 0; first < hashes.size(); first += query_window) {
    const auto count = std::min(query_window, hashes.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      keys[i] = in.key_of(*hashes[first + i]);
      table.prefetch_chain(keys[i]);
    }
    for (std::size_t i = 0; i < count; ++i)
      table.prefetch_record(keys[i]);
    for (std::size_t i = 0; i < count; ++i) {
      if (!each(static_cast<std::uint32_t>(first + i), keys[i])) return;
    }
  }
}

// The owners of one position that go into the answer: heard of last first.
class nearest_owners {
public:
  void clear() noexcept { count_ = 0; }
  void add(session_index at, time_point seen) noexcept {
    auto place = count_;
    while (place > 0 && later(at, seen, place - 1))
      --place;
    if (place == owners_.size()) return;
    count_ = std::min(count_ + 1, owners_.size());
    for (auto i = count_ - 1; i > place; --i)
      owners_[i] = owners_[i - 1];
    owners_[place] = {at, seen};
  }
  std::size_t size() const noexcept { return count_; }
  session_index operator[](std::size_t i) const noexcept { return owners_[i].at; }

private:
  struct owner {
    session_index at;
    time_point seen;
  };
  bool later(session_index at, time_point seen, std::size_t than) const noexcept {
    if (seen != owners_[than].seen) return seen > owners_[than].seen;
    return at < owners_[than].at;
  }
  std::array<owner, limits::directory_located_owners_max> owners_{};
  std::size_t count_ = 0;
};

}  // namespace

result<std::vector<node_prefix>> directory_store::query_prefix(std::string_view name_space,
                                                               block_hashes hashes) {
  if (auto valid = check_hashes(hashes); !valid) return tl::unexpected(valid.error());
  session_views views(sessions_, clock_.now());
  std::vector<session_index> candidates;
  walk(table_, name_space, hashes, [&](std::uint32_t at, const directory_key& key) {
    bool goes_on = false;
    const std::lock_guard lock(table_.lock_of(key));
    table_.for_owners(key, [&](session_index owner) {
      auto& view = views.of(owner);
      if (!view.visible || view.length != at) return;
      if (at == 0) candidates.push_back(owner);
      ++view.length;
      goes_on = true;
    });
    return goes_on;
  });
  std::vector<node_prefix> out;
  out.reserve(candidates.size());
  for (const auto each : candidates) {
    const auto& view = views.of(each);
    if (auto name = sessions_.name(each, view.generation)) {
      out.push_back({std::move(*name), view.length});
    }
  }
  return out;
}

result<located_blocks> directory_store::locate(std::string_view name_space, block_hashes hashes,
                                               std::string_view except, bool over_gaps) {
  if (auto valid = check_hashes(hashes); !valid) return tl::unexpected(valid.error());
  session_views views(sessions_, clock_.now());
  const auto asking = sessions_.live(except);
  located_blocks out;
  nearest_owners owners;
  std::vector<std::uint32_t> found;
  // The session's place in the answer; it is visible, so it has a name, unless it went just now.
  const auto index_of = [&](session_index at) {
    auto& view = views.of(at);
    if (!view.named) {
      auto name = sessions_.name(at, view.generation);
      view.visible = name.has_value();
      if (!name) return false;
      view.index = static_cast<std::uint32_t>(out.nodes.size());
      view.named = true;
      out.nodes.push_back(std::move(*name));
    }
    found.push_back(view.index);
    return true;
  };
  walk(table_, name_space, hashes, [&](std::uint32_t at, const directory_key& key) {
    owners.clear();
    {
      const std::lock_guard lock(table_.lock_of(key));
      table_.for_owners(key, [&](session_index owner) {
        const auto& view = views.of(owner);
        if (view.visible && owner != asking) owners.add(owner, view.seen);
      });
    }
    found.clear();
    for (std::size_t i = 0; i < owners.size(); ++i)
      index_of(owners[i]);
    if (found.empty()) return over_gaps;
    auto* last = out.runs.empty() ? nullptr : &out.runs.back();
    if (last != nullptr && last->first + last->count == at && last->owners == found) {
      ++last->count;
    } else {
      out.runs.push_back({.first = at, .count = 1, .owners = found});
    }
    return true;
  });
  return out;
}

}  // namespace kvd
