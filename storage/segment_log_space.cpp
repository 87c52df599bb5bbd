// Which segment takes the next records: opening, closing and reclaiming them.

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <limits>

#include "storage/segment_log_parts.hpp"

namespace kvd {

namespace {

constexpr auto no_segment = std::numeric_limits<std::uint32_t>::max();
// Then the file itself is at fault: emptying more segments would only lose blocks.
constexpr std::uint32_t failures_to_stop_at = 2;

}  // namespace

std::uint32_t segment_log::choose() noexcept {
  const auto take = [](std::deque<std::uint32_t>& from) {
    const auto number = from.front();
    from.pop_front();
    return number;
  };
  if (!free_.empty()) return take(free_);
  if (!failed_.empty() && failures_in_a_row_ >= failures_to_stop_at) return take(failed_);
  // Each is spared once at most, so the second round ends it.
  while (!full_.empty()) {
    const auto number = take(full_);
    if (!segments_[number].read_since) {
      reclaim(number);
      return number;
    }
    segments_[number].read_since = false;
    full_.push_back(number);
  }
  return failed_.empty() ? no_segment : take(failed_);
}

void segment_log::reclaim(std::uint32_t number) noexcept {
  auto& segment = segments_[number];
  std::uint64_t erased = 0;
  for (const auto& entry : segment.entries) {
    if (index_.erase_if(entry.key, number, entry.offset)) ++erased;
  }
  list_bytes_.fetch_sub(segment.entries.size() * sizeof(ssd::list_entry),
                        std::memory_order_relaxed);
  segment.entries.clear();
  segments_reclaimed_.fetch_add(1, std::memory_order_relaxed);
  records_reclaimed_.fetch_add(erased, std::memory_order_relaxed);
}

// False: with an error when there is no segment left, without when one is about to be.
bool segment_log::open_segment(int& error) noexcept {
  active_segment* active = nullptr;
  for (auto& any : active_) {
    if (any->as == active_segment::use::idle) active = any.get();
  }
  if (active == nullptr) return false;
  const auto number = choose();
  if (number == no_segment) {
    const bool comes = std::any_of(active_.begin(), active_.end(), [](const auto& any) {
      return any->as != active_segment::use::idle;
    });
    error = comes ? 0 : EIO;
    return false;
  }
  segments_free_.store(free_.size() + failed_.size(), std::memory_order_relaxed);
  auto& segment = segments_[number];
  segment.generation = ++generation_;
  segment.read_since = false;
  segment.listed = false;
  active->as = active_segment::use::open;
  active->number = number;
  active->next = super_.alignment;
  active->placed = 0;
  active->under_way = 0;
  active->header_on_file = false;
  active->header_syncing = false;
  active->header_synced = false;
  active->header_error = 0;
  active->footer_on_file = false;
  const auto header = active->header.span().first(super_.alignment);
  ssd::encode_segment_header(super_, {number, segment.generation}, header);
  active->piece = {header.data(), header.size()};
  active->io = {};
  active->io.what = file_io::kind::write;
  active->io.offset = super_.offset_of(number);
  active->io.pieces = {&active->piece, 1};
  active->io.owner = active;
  active->io.on_done = [](file_io& io, int failure) noexcept {
    auto& of = *static_cast<active_segment*>(io.owner);
    of.log->header_done(of, failure);
  };
  open_ = active;
  ++housekeeping_;
  file_.submit(active->io);
  return true;
}

void segment_log::header_done(active_segment& of, int error) noexcept {
  --housekeeping_;
  of.header_on_file = true;
  of.header_error = error;
  if (error != 0) {
    ++failures_in_a_row_;
  } else if (how_.level != durability::write) {
    failures_in_a_row_ = 0;  // at `write` its first sync must end well, too
  }
  if (error != 0 && open_ == &of) {
    open_ = nullptr;
    of.as = active_segment::use::closing;
  }
  // Kept from being retired, and opened anew, by the first completion.
  ++of.under_way;
  for (auto& slot : write_slots_) {
    if (slot.in == &of && slot.at == write_slot::stage::header) written(slot);
  }
  --of.under_way;
  list_if_quiet(of);
  pump();
}

void segment_log::close_segment(active_segment& of) noexcept {
  assert(open_ == &of);
  open_ = nullptr;
  of.as = active_segment::use::closing;
  list_if_quiet(of);
}

// Once nothing is on its way into a closed segment, its footer can be written.
void segment_log::list_if_quiet(active_segment& of) noexcept {
  if (of.as != active_segment::use::closing || of.under_way > 0 || !of.header_on_file) return;
  if (of.header_error != 0) return retire(of);
  of.as = active_segment::use::listing;
  auto& segment = segments_[of.number];
  std::sort(segment.entries.begin(), segment.entries.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  const auto bytes = ssd::footer_bytes(segment.entries.size(), super_.alignment);
  if (of.footer.size() < bytes) of.footer = aligned_bytes(bytes);
  const auto footer = of.footer.span().first(bytes);
  ssd::encode_footer(super_, {of.number, segment.generation}, segment.entries, footer);
  of.piece = {footer.data(), footer.size()};
  of.io.what = file_io::kind::write;
  of.io.offset = super_.offset_of(of.number + 1) - bytes;
  of.io.pieces = {&of.piece, 1};
  of.io.on_done = [](file_io& io, int failure) noexcept {
    auto& done = *static_cast<active_segment*>(io.owner);
    done.log->footer_done(done, failure);
  };
  ++housekeeping_;
  file_.submit(of.io);
}

// Without a footer, or its sync, the segment serves on: a restart scans it.
void segment_log::footer_done(active_segment& of, int error) noexcept {
  --housekeeping_;
  if (error == 0 && !of.footer_on_file && how_.level != durability::process) {
    of.footer_on_file = true;
    of.io.what = file_io::kind::sync;
    of.io.offset = 0;
    of.io.pieces = {};
    ++housekeeping_;
    file_.submit(of.io);
    return;
  }
  if (error != 0 && of.footer_on_file) sync_failed(error);
  segments_[of.number].listed = error == 0;
  retire(of);
  pump();
}

void segment_log::retire(active_segment& of) noexcept {
  of.as = active_segment::use::idle;
  if (of.header_error != 0) {
    failed_.push_back(of.number);
  } else if (segments_[of.number].entries.empty()) {
    free_.push_back(of.number);
  } else {
    full_.push_back(of.number);
  }
  segments_free_.store(free_.size() + failed_.size(), std::memory_order_relaxed);
}

void segment_log::settle() noexcept {
  while (housekeeping_ > 0)
    file_.poll(std::chrono::milliseconds(1000));
}

}  // namespace kvd
