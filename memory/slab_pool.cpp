#include "memory/slab_pool.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include <fmt/format.h>

#include "core/limits.hpp"
#include "memory/slot_bitmap.hpp"

namespace kvd {

namespace {

constexpr std::uint64_t unit = limits::pool_unit_bytes;
constexpr std::uint64_t chunk_bytes_min = 4096;
constexpr std::uint64_t chunk_bytes_max = 64 << 20;
// Enough chunks that a few classes can share a small pool, and that giving one up costs little.
constexpr std::uint64_t chunks_wanted = 256;
constexpr std::uint64_t chunks_wanted_min = 32;
// A chunk of 16 typical parts loses at most a sixteenth of itself at its end.
constexpr std::uint64_t parts_a_chunk = 16;
constexpr std::uint64_t waste_denominator = 16;
constexpr std::uint32_t slab_chunks_wanted_max = 8;
constexpr std::uint64_t page_rounding_from = 64 << 10;
constexpr std::uint64_t slot_alignment_max = 4096;  // regions and chunks have at least that
// Slabs that one call searches for a contiguous run before it takes what comes first.
constexpr int run_search_slabs = 8;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

std::uint64_t slab_pool::chunk_bytes_for(std::uint64_t pool_bytes, std::uint64_t hint_value_bytes) {
  const auto by_pool = std::bit_floor(std::max<std::uint64_t>(pool_bytes / chunks_wanted, 1));
  const auto most = std::bit_floor(std::max<std::uint64_t>(pool_bytes / chunks_wanted_min, 1));
  const auto hint = std::min(hint_value_bytes, chunk_bytes_max);
  const auto by_hint = hint == 0 ? 0 : std::bit_ceil(hint * parts_a_chunk);
  return std::clamp(std::max(by_pool, std::min(by_hint, most)), chunk_bytes_min, chunk_bytes_max);
}

result<std::unique_ptr<slab_pool>> slab_pool::create(const options& how) {
  assert(how.slot_alignment >= unit && how.slot_alignment <= slot_alignment_max &&
         std::has_single_bit(how.slot_alignment));
  std::uint64_t total = 0;
  for (const auto& region : how.regions)
    total += region.bytes;
  const auto chunk_bytes = chunk_bytes_for(total, how.hint_value_bytes);
  if (how.regions.empty()) return fail(errc::invalid_argument, "the pool has no memory");
  if (total > limits::pool_bytes_max) {
    return fail(errc::invalid_argument,
                fmt::format("the pool has {} bytes, limit {}", total, limits::pool_bytes_max));
  }
  std::uint32_t count = 0;
  for (const auto& region : how.regions) {
    if (region.bytes < chunk_bytes) {
      return fail(errc::invalid_argument,
                  fmt::format("node {} gives the pool {} bytes, less than one slab of {} bytes",
                              region.node, region.bytes, chunk_bytes));
    }
    count += static_cast<std::uint32_t>(region.bytes / chunk_bytes);
  }
  try {
    return std::unique_ptr<slab_pool>(new slab_pool(how, chunk_bytes, count));
  } catch (const std::bad_alloc&) {
    return fail(errc::storage, "no memory for the pool's bookkeeping");
  }
}

slab_pool::slab_pool(const options& how, std::uint64_t chunk_bytes, std::uint32_t chunk_count)
    : chunk_shift_(static_cast<std::uint32_t>(std::countr_zero(chunk_bytes / unit))),
      chunk_bytes_(chunk_bytes), blockwise_(how.blockwise), slot_alignment_(how.slot_alignment),
      nodes_(std::make_unique<node_state[]>(how.regions.size())), node_count_(how.regions.size()),
      chunks_(std::make_unique<chunk[]>(chunk_count)),
      owners_(std::size_t{chunk_count} << chunk_shift_),
      bitmaps_(std::size_t{chunk_count} * std::max<std::uint64_t>(chunk_bytes / unit / 64, 1)),
      bitmap_words_(
          static_cast<std::uint32_t>(std::max<std::uint64_t>(chunk_bytes / unit / 64, 1))) {
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < node_count_; ++i) {
    auto& in = nodes_[i];
    in.node = how.regions[i].node;
    in.base = how.regions[i].base;
    in.first_chunk = first;
    in.chunks = static_cast<std::uint32_t>(how.regions[i].bytes / chunk_bytes);
    first += in.chunks;
    // The last unit of 2^32 would be no_slot's.
    if (first == std::uint64_t{1} << (32 - chunk_shift_)) --in.chunks;
    in.free_chunks.resize(round_up(in.chunks, 64) / 64 + 1);
    capacity_ += in.chunks * chunk_bytes;
  }
}

slab_pool::~slab_pool() = default;

// Takes the fewest chunks a slab whose unusable end is small, else those that waste least.
slab_pool::class_shape slab_pool::shape_for(std::uint64_t bytes) const noexcept {
  const auto least = static_cast<std::uint32_t>((bytes + chunk_bytes_ - 1) / chunk_bytes_);
  class_shape best;
  std::uint64_t best_waste = 0;
  for (auto count = least; count <= std::max(least, slab_chunks_wanted_max); ++count) {
    const auto total = count * chunk_bytes_;
    const auto waste = total % bytes;
    // Compares waste / total without a division: totals are count x chunk_bytes_.
    if (best.chunks != 0 && waste * best.chunks >= best_waste * count) continue;
    best = {bytes, static_cast<std::uint32_t>(bytes / unit), count,
            static_cast<std::uint32_t>(total / bytes)};
    best_waste = waste;
    if (waste * waste_denominator <= total) break;
  }
  return best;
}

result<size_class> slab_pool::learn(std::uint64_t part_bytes) {
  if (part_bytes == 0) return fail(errc::invalid_argument, "a part of 0 bytes cannot be stored");
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < node_count_; ++i) {
    largest = std::max(largest, nodes_[i].chunks * chunk_bytes_);
  }
  if (part_bytes > largest) {
    return fail(errc::invalid_argument,
                fmt::format("a part of {} bytes does not fit into the pool, which holds {} bytes "
                            "in {} node(s), {} in the largest",
                            part_bytes, capacity_, node_count_, largest));
  }
  const auto bytes =
      round_up(part_bytes, part_bytes < page_rounding_from ? slot_alignment_ : slot_alignment_max);
  const std::lock_guard lock(learn_mutex_);
  const auto count = class_count_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    if (classes_[i].bytes == bytes) return static_cast<size_class>(i);
  }
  if (count == classes_max) {
    return fail(errc::limit_exceeded,
                fmt::format("parts of {} bytes would be size class {}, limit {}", bytes, count + 1,
                            classes_max));
  }
  try {
    for (std::size_t i = 0; i < node_count_; ++i) {
      auto state = std::make_unique<class_state>();
      state->open.resize(nodes_[i].free_chunks.size());
      nodes_[i].classes[count] = std::move(state);
    }
  } catch (const std::bad_alloc&) {
    return fail(errc::storage, "no memory for a new size class");
  }
  classes_[count] = shape_for(bytes);
  class_count_.store(count + 1, std::memory_order_release);
  return static_cast<size_class>(count);
}

std::uint64_t slab_pool::bytes_of(size_class of) const noexcept {
  return classes_[of].bytes;
}

std::byte* slab_pool::address(slot at) const noexcept {
  const auto& in = node_at(chunk_of(at));
  return in.base + (at.unit - std::uint64_t{first_unit(in.first_chunk)}) * unit;
}

int slab_pool::node_of(slot at) const noexcept {
  return node_at(chunk_of(at)).node;
}

size_class slab_pool::class_of(slot at) const noexcept {
  return chunks_[chunks_[chunk_of(at)].head].of;
}

block_index slab_pool::owner_of(slot at) const noexcept {
  const auto head = chunks_[chunk_of(at)].head;
  return owners_[first_unit(head) + slot_number(at, head)];
}

std::uint32_t slab_pool::slot_number(slot at, std::uint32_t head) const noexcept {
  return (at.unit - first_unit(head)) / classes_[chunks_[head].of].units;
}

slab_pool::node_state& slab_pool::node_at(std::uint32_t chunk_index) const noexcept {
  auto at = node_count_ - 1;
  while (nodes_[at].first_chunk > chunk_index)
    --at;
  return nodes_[at];
}

slab_pool::node_state* slab_pool::find_node(int node) const noexcept {
  for (std::size_t i = 0; i < node_count_; ++i) {
    if (nodes_[i].node == node) return &nodes_[i];
  }
  return nullptr;
}

slab_pool::node_state& slab_pool::emptiest() const noexcept {
  const auto room = [this](const node_state& in) {
    const auto claimed = in.claimed.load(std::memory_order_relaxed) * chunk_bytes_;
    const auto used = in.used.load(std::memory_order_relaxed);
    return claimed > used ? claimed - used : 0;
  };
  return *std::max_element(
      nodes_.get(), nodes_.get() + node_count_,
      [&](const node_state& a, const node_state& b) { return room(a) < room(b); });
}

// No longer than the slots need: what lies behind is never touched, so it costs nothing.
std::span<std::uint64_t> slab_pool::bitmap_of(std::uint32_t head) const noexcept {
  const auto words = (classes_[chunks_[head].of].slots + 63) / 64;
  return {&bitmaps_[std::size_t{head} * bitmap_words_], words};
}

std::size_t slab_pool::slots_per_slab_max() const noexcept {
  // Slots below a sixteenth of a chunk get slabs of one chunk; the others at most 16 a chunk.
  return std::max<std::size_t>(chunk_bytes_ / unit, slab_chunks_wanted_max * waste_denominator);
}

std::size_t slab_pool::allocate(size_class of, int preferred_node, std::span<slot> out,
                                std::span<const block_index> owners) noexcept {
  assert(of < class_count_.load(std::memory_order_acquire) && owners.size() >= out.size());
  if (out.empty()) return 0;
  const auto* preferred = find_node(preferred_node);
  auto& first = preferred == nullptr ? emptiest() : *find_node(preferred_node);
  auto done = [&] {
    const std::lock_guard lock(first.mutex);
    return take(first, of, out, owners);
  }();
  for (std::size_t i = 0; i < node_count_ && done < out.size(); ++i) {
    auto& in = nodes_[i];
    if (&in == &first) continue;
    const std::lock_guard lock(in.mutex);
    done += take(in, of, out.subspan(done), owners.subspan(done));
  }
  return done;
}

void slab_pool::release(std::span<const slot> slots) noexcept {
  for (std::size_t i = 0; i < node_count_; ++i) {
    auto& in = nodes_[i];
    const auto is_here = [&](slot at) { return &node_at(chunk_of(at)) == &in; };
    auto next = std::find_if(slots.begin(), slots.end(), is_here);
    if (next == slots.end()) continue;
    const std::lock_guard lock(in.mutex);
    for (; next != slots.end(); next = std::find_if(next + 1, slots.end(), is_here)) {
      give_back(in, *next);
    }
  }
}

std::size_t slab_pool::take(node_state& in, size_class of, std::span<slot> out,
                            std::span<const block_index> owners) noexcept {
  const auto& open = in.classes[of]->open;
  std::size_t done = blockwise_ ? 0 : take_run(in, of, out, owners);
  while (done < out.size()) {
    const auto local = next_set(open, in.chunks, 0);
    const auto head = local < in.chunks ? in.first_chunk + local : open_slab(in, of);
    if (head == no_chunk) break;
    done += take_lowest(in, head, out.subspan(done), owners.subspan(done));
  }
  return done;
}

// All of `out` adjoining, or nothing: copies to and from one run merge.
std::size_t slab_pool::take_run(node_state& in, size_class of, std::span<slot> out,
                                std::span<const block_index> owners) noexcept {
  const auto& shape = classes_[of];
  const auto& open = in.classes[of]->open;
  if (out.size() < 2 || out.size() > shape.slots) return 0;
  auto local = next_set(open, in.chunks, 0);
  for (int seen = 0; seen < run_search_slabs && local < in.chunks; ++seen) {
    const auto head = in.first_chunk + local;
    const auto words = bitmap_of(head);
    auto run = next_run(words, shape.slots, chunks_[head].first_open_word * 64);
    while (run.length != 0 && run.length < out.size()) {
      run = next_run(words, shape.slots, run.first + run.length);
    }
    if (run.length != 0) {
      const auto count = static_cast<std::uint32_t>(out.size());
      clear_bits(words, {run.first, count});
      for (std::uint32_t i = 0; i < count; ++i) {
        out[i] = {first_unit(head) + (run.first + i) * shape.units};
        owners_[first_unit(head) + run.first + i] = owners[i];
      }
      account_taken(in, head, count);
      return count;
    }
    local = next_set(open, in.chunks, local + 1);
  }
  return 0;
}

std::size_t slab_pool::take_lowest(node_state& in, std::uint32_t head, std::span<slot> out,
                                   std::span<const block_index> owners) noexcept {
  const auto& shape = classes_[chunks_[head].of];
  const auto words = bitmap_of(head);
  std::uint32_t count = 0;
  auto at = next_set(words, shape.slots, chunks_[head].first_open_word * 64);
  while (count < out.size() && at < shape.slots) {
    clear_bit(words, at);
    out[count] = {first_unit(head) + at * shape.units};
    owners_[first_unit(head) + at] = owners[count];
    chunks_[head].first_open_word = at / 64;
    ++count;
    at = next_set(words, shape.slots, at + 1);
  }
  account_taken(in, head, count);
  return count;
}

void slab_pool::account_taken(node_state& in, std::uint32_t head, std::uint32_t count) noexcept {
  auto& slab = chunks_[head];
  auto& state = *in.classes[slab.of];
  const auto bytes = count * classes_[slab.of].bytes;
  slab.slots_free -= count;
  if (slab.slots_free == 0) clear_bit(state.open, head - in.first_chunk);
  state.slots_free -= count;
  state.slots_live += count;
  in.used.fetch_add(bytes, std::memory_order_relaxed);
  used_.fetch_add(bytes, std::memory_order_relaxed);
}

// Single chunks come from the low end and longer slabs from the high end, so that the small do not
// settle between the large.
std::uint32_t slab_pool::open_slab(node_state& in, size_class of) noexcept {
  const auto& shape = classes_[of];
  const auto claimed = in.claimed.load(std::memory_order_relaxed);
  bit_run found{0, 0};
  for (auto run = next_run(in.free_chunks, claimed, 0); run.length != 0;
       run = next_run(in.free_chunks, claimed, run.first + run.length)) {
    if (run.length < shape.chunks) continue;
    found = run;
    if (shape.chunks == 1) break;
  }
  if (found.length == 0) return no_chunk;
  const auto local = shape.chunks == 1 ? found.first : found.first + found.length - shape.chunks;
  const auto head = in.first_chunk + local;
  clear_bits(in.free_chunks, {local, shape.chunks});
  for (std::uint32_t i = 0; i < shape.chunks; ++i)
    chunks_[head + i].head = head;
  chunks_[head].of = of;
  chunks_[head].slots_free = shape.slots;
  chunks_[head].first_open_word = 0;
  const auto words = bitmap_of(head);
  std::fill(words.begin(), words.end(), 0);
  set_bits(words, {0, shape.slots});
  auto& state = *in.classes[of];
  set_bit(state.open, local);
  state.slots_free += shape.slots;
  ++state.slabs;
  return head;
}

void slab_pool::close_slab(node_state& in, std::uint32_t head) noexcept {
  const auto& shape = classes_[chunks_[head].of];
  auto& state = *in.classes[chunks_[head].of];
  const auto local = head - in.first_chunk;
  clear_bit(state.open, local);
  state.slots_free -= shape.slots;
  --state.slabs;
  for (std::uint32_t i = 0; i < shape.chunks; ++i)
    chunks_[head + i].head = no_chunk;
  set_bits(in.free_chunks, {local, shape.chunks});
}

void slab_pool::give_back(node_state& in, slot at) noexcept {
  const auto head = chunks_[chunk_of(at)].head;
  assert(head != no_chunk && "released a slot of no slab");
  auto& slab = chunks_[head];
  const auto& shape = classes_[slab.of];
  auto& state = *in.classes[slab.of];
  const auto number = slot_number(at, head);
  assert(!test_bit(bitmap_of(head), number) && "released a slot twice");
  set_bit(bitmap_of(head), number);
  slab.first_open_word = std::min(slab.first_open_word, number / 64);
  ++slab.slots_free;
  ++state.slots_free;
  --state.slots_live;
  in.used.fetch_sub(shape.bytes, std::memory_order_relaxed);
  used_.fetch_sub(shape.bytes, std::memory_order_relaxed);
  if (slab.slots_free == shape.slots) {
    close_slab(in, head);
  } else if (slab.slots_free == 1) {
    set_bit(state.open, head - in.first_chunk);
  }
}

void slab_pool::grow(int node, std::uint64_t bytes) noexcept {
  auto* const in = find_node(node);
  if (in == nullptr) return;
  const std::lock_guard lock(in->mutex);
  const auto before = in->claimed.load(std::memory_order_relaxed);
  const auto after =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / chunk_bytes_, in->chunks));
  if (after <= before) return;
  set_bits(in->free_chunks, {before, after - before});
  in->claimed.store(after, std::memory_order_relaxed);
  claimed_.fetch_add((after - before) * chunk_bytes_, std::memory_order_relaxed);
}

}  // namespace kvd
