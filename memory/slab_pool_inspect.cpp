// slab_pool: finding what to vacate, figures for operators, and the invariants.

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "memory/slab_pool.hpp"
#include "memory/slot_bitmap.hpp"

namespace kvd {

namespace {

// Windows that are tried one by one before every slab is asked. Few blocks are pinned as a rule,
// so the first few windows do; the full round bounds the work when many are.
constexpr int windows_tried = 16;

}  // namespace

template<class Visit>
void slab_pool::for_each_slab(const node_state& in, window of, Visit visit) const noexcept {
  auto at = in.first_chunk + of.first;
  const auto end = at + of.chunks;
  while (at < end) {
    const auto head = chunks_[at].head;
    if (head == no_chunk) {
      ++at;
      continue;
    }
    visit(head);
    at = head + classes_[chunks_[head].of].chunks;
  }
}

std::size_t slab_pool::live_owners(std::uint32_t head, std::span<block_index> out) const noexcept {
  const auto slots = classes_[chunks_[head].of].slots;
  const auto words = bitmap_of(head);
  std::size_t count = 0;
  for (auto at = next_clear(words, slots, 0); at < slots && count < out.size();
       at = next_clear(words, slots, at + 1)) {
    out[count++] = owners_[first_unit(head) + at];
  }
  return count;
}

bool slab_pool::all_may_go(std::uint32_t head, evictable& may_go) const noexcept {
  const auto slots = classes_[chunks_[head].of].slots;
  const auto words = bitmap_of(head);
  for (auto at = next_clear(words, slots, 0); at < slots; at = next_clear(words, slots, at + 1)) {
    if (!may_go(owners_[first_unit(head) + at])) return false;
  }
  return true;
}

std::uint64_t slab_pool::live_bytes(std::uint32_t head) const noexcept {
  const auto& shape = classes_[chunks_[head].of];
  return (shape.slots - chunks_[head].slots_free) * shape.bytes;
}

std::size_t slab_pool::slab_owners(slot at, std::span<block_index> out) const noexcept {
  auto& in = node_at(chunk_of(at));
  const std::lock_guard lock(in.mutex);
  const auto head = chunks_[chunk_of(at)].head;
  return head == no_chunk ? 0 : live_owners(head, out);
}

// Slides over the claimed chunks. A slab counts in full in every window that it reaches into.
slab_pool::window slab_pool::cheapest_window(const node_state& in,
                                             std::uint32_t chunks) const noexcept {
  const auto claimed = in.claimed.load(std::memory_order_relaxed);
  if (chunks > claimed) return {0, 0};
  std::uint64_t bytes = 0;  // of slabs that begin inside the window
  std::uint32_t stuck = 0;
  const auto begins = [&](std::uint32_t local) {
    return chunks_[in.first_chunk + local].head == in.first_chunk + local;
  };
  const auto enter = [&](std::uint32_t local) {
    if (!begins(local)) return;
    bytes += live_bytes(in.first_chunk + local);
    stuck += chunks_[in.first_chunk + local].stuck ? 1 : 0;
  };
  const auto leave = [&](std::uint32_t local) {
    if (!begins(local)) return;
    bytes -= live_bytes(in.first_chunk + local);
    stuck -= chunks_[in.first_chunk + local].stuck ? 1 : 0;
  };
  window best{0, 0};
  std::uint64_t best_bytes = 0;
  for (std::uint32_t end = 0; end < claimed; ++end) {
    enter(end);
    if (end + 1 < chunks) continue;
    const auto first = end + 1 - chunks;
    const auto head = chunks_[in.first_chunk + first].head;
    const bool reaches_in = head != no_chunk && head != in.first_chunk + first;
    const auto cost = bytes + (reaches_in ? live_bytes(head) : 0);
    const bool can_go = stuck == 0 && !(reaches_in && chunks_[head].stuck);
    // Among equals the first from the cursor on, so that one place is not vacated for ever.
    const bool better = best.chunks == 0 || cost < best_bytes ||
                        (cost == best_bytes && best.first < in.cursor && first >= in.cursor);
    if (can_go && better) {
      best = {first, chunks};
      best_bytes = cost;
    }
    leave(first);
  }
  return best;
}

std::size_t slab_pool::propose_window(size_class of, int preferred_node, evictable& may_go,
                                      std::span<block_index> out) noexcept {
  auto* const preferred = find_node(preferred_node);
  if (preferred != nullptr) {
    if (const auto count = propose_on(*preferred, of, may_go, out); count != 0) return count;
  }
  for (std::size_t i = 0; i < node_count_; ++i) {
    if (&nodes_[i] == preferred) continue;
    if (const auto count = propose_on(nodes_[i], of, may_go, out); count != 0) return count;
  }
  return 0;
}

std::size_t slab_pool::propose_on(node_state& in, size_class of, evictable& may_go,
                                  std::span<block_index> out) noexcept {
  const std::lock_guard lock(in.mutex);
  const window everything{0, in.claimed.load(std::memory_order_relaxed)};
  for_each_slab(in, everything,
                [&](std::uint32_t head) { chunks_[head].stuck = chunks_[head].of == of; });
  for (int tried = 0;; ++tried) {
    if (tried == windows_tried) {
      for_each_slab(in, everything, [&](std::uint32_t head) {
        if (!chunks_[head].stuck) chunks_[head].stuck = !all_may_go(head, may_go);
      });
    }
    const auto found = cheapest_window(in, classes_[of].chunks);
    if (found.chunks == 0) return 0;
    bool refused = false;
    for_each_slab(in, found, [&](std::uint32_t head) {
      chunks_[head].stuck = !all_may_go(head, may_go);
      refused = refused || chunks_[head].stuck;
    });
    if (refused) continue;
    std::size_t count = 0;
    for_each_slab(in, found,
                  [&](std::uint32_t head) { count += live_owners(head, out.subspan(count)); });
    in.cursor = found.first + found.chunks;
    return count;
  }
}

slab_pool::usage slab_pool::snapshot() const {
  usage all;
  all.capacity = capacity_;
  all.chunk_bytes = chunk_bytes_;
  all.classes.resize(class_count_.load(std::memory_order_acquire));
  for (std::size_t c = 0; c < all.classes.size(); ++c)
    all.classes[c].bytes = classes_[c].bytes;
  for (std::size_t i = 0; i < node_count_; ++i) {
    const auto& in = nodes_[i];
    const std::lock_guard lock(in.mutex);
    const auto claimed = in.claimed.load(std::memory_order_relaxed);
    node_usage row{in.node, in.chunks * chunk_bytes_, claimed * chunk_bytes_,
                   in.used.load(std::memory_order_relaxed), 0};
    for (auto run = next_run(in.free_chunks, claimed, 0); run.length != 0;
         run = next_run(in.free_chunks, claimed, run.first + run.length)) {
      row.largest_free = std::max(row.largest_free, run.length * chunk_bytes_);
    }
    const bool chunks_are_free = row.largest_free != 0;
    for (std::size_t c = 0; c < all.classes.size(); ++c) {
      const auto& state = *in.classes[c];
      all.classes[c].slots_live += state.slots_live;
      all.classes[c].slots_free += state.slots_free;
      all.classes[c].slabs += state.slabs;
      if (!chunks_are_free && state.slots_free != 0) {
        row.largest_free = std::max(row.largest_free, classes_[c].bytes);
      }
    }
    all.claimed += row.claimed;
    all.used += row.used;
    all.largest_free = std::max(all.largest_free, row.largest_free);
    all.nodes.push_back(row);
  }
  return all;
}

std::string slab_pool::check_slab(const node_state& in, std::uint32_t head) const {
  const auto& slab = chunks_[head];
  const auto& shape = classes_[slab.of];
  const auto words = bitmap_of(head);
  const auto local = head - in.first_chunk;
  if (local + shape.chunks > in.claimed.load(std::memory_order_relaxed)) {
    return fmt::format("6: slab at chunk {} ends beyond the claim", head);
  }
  for (std::uint32_t i = 0; i < shape.chunks; ++i) {
    if (chunks_[head + i].head != head || test_bit(in.free_chunks, local + i)) {
      return fmt::format("1: chunk {} of the slab at chunk {} is not its own", head + i, head);
    }
  }
  std::uint32_t free = 0;
  for (const auto word : words)
    free += static_cast<std::uint32_t>(std::popcount(word));
  const auto in_reach = next_set(words, shape.slots, slab.first_open_word * 64);
  if (free != slab.slots_free || in_reach != next_set(words, shape.slots, 0) ||
      next_set(words, static_cast<std::uint32_t>(words.size() * 64), shape.slots) !=
          words.size() * 64) {
    return fmt::format("2: slab at chunk {} counts {} free slots of {}, its bitmap {}", head,
                       slab.slots_free, shape.slots, free);
  }
  if (test_bit(in.classes[slab.of]->open, local) != (free != 0)) {
    return fmt::format("3: slab at chunk {} has {} free slots, open is {}", head, free, free == 0);
  }
  if (free == shape.slots) return fmt::format("4: slab at chunk {} is empty", head);
  for (auto at = next_clear(words, shape.slots, 0); at < shape.slots;
       at = next_clear(words, shape.slots, at + 1)) {
    if (owners_[first_unit(head) + at] == no_block) {
      return fmt::format("5: slot {} of the slab at chunk {} has no owner", at, head);
    }
  }
  return {};
}

std::string slab_pool::check_node(const node_state& in) const {
  const std::lock_guard lock(in.mutex);
  const auto claimed = in.claimed.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < in.chunks; ++i) {
    const bool is_free = test_bit(in.free_chunks, i);
    const bool is_slab = chunks_[in.first_chunk + i].head != no_chunk;
    if ((i < claimed) != (is_free || is_slab)) {
      return fmt::format("1: chunk {} of node {} is neither free nor in a slab, or not claimed", i,
                         in.node);
    }
  }
  std::array<class_usage, classes_max> seen{};
  std::array<std::uint64_t, classes_max> open{};
  std::uint64_t used = 0;
  std::string broken;
  for_each_slab(in, {0, claimed}, [&](std::uint32_t head) {
    auto& row = seen[chunks_[head].of];
    const auto slots = classes_[chunks_[head].of].slots;
    ++row.slabs;
    row.slots_free += chunks_[head].slots_free;
    row.slots_live += slots - chunks_[head].slots_free;
    used += live_bytes(head);
    open[chunks_[head].of] += chunks_[head].slots_free != 0 ? 1 : 0;
    if (broken.empty()) broken = check_slab(in, head);
  });
  if (!broken.empty()) return broken;
  if (used != in.used.load(std::memory_order_relaxed)) {
    return fmt::format("6: node {} counts {} used bytes, its slabs {}", in.node,
                       in.used.load(std::memory_order_relaxed), used);
  }
  for (std::size_t c = 0; c < class_count_.load(std::memory_order_acquire); ++c) {
    const auto& state = *in.classes[c];
    std::uint64_t listed = 0;
    for (const auto word : state.open)
      listed += static_cast<std::uint64_t>(std::popcount(word));
    if (listed != open[c]) {
      return fmt::format("3: class {} lists {} open slabs, there are {}", c, listed, open[c]);
    }
    if (state.slabs != seen[c].slabs || state.slots_free != seen[c].slots_free ||
        state.slots_live != seen[c].slots_live) {
      return fmt::format(
          "6: class {} counts {} slabs, {} free and {} live slots; there are {}, {}, {}", c,
          state.slabs, state.slots_free, state.slots_live, seen[c].slabs, seen[c].slots_free,
          seen[c].slots_live);
    }
  }
  return {};
}

std::string slab_pool::check() const {
  for (std::size_t i = 0; i < node_count_; ++i) {
    if (auto broken = check_node(nodes_[i]); !broken.empty()) return broken;
  }
  return {};
}

}  // namespace kvd
