#include "storage/memory_file.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace kvd {

namespace {

constexpr std::uint64_t sector_bytes = 512;
constexpr auto all_sectors = std::numeric_limits<std::uint64_t>::max();

std::uint64_t bytes_of(const file_io& io) {
  std::uint64_t bytes = 0;
  for (const auto& piece : io.pieces)
    bytes += piece.bytes;
  return bytes;
}

// Calls visit(sector's offset in the file, its bytes) for up to `sectors` of a request.
template<class Visit>
void each_sector(const file_io& io, std::uint64_t sectors, Visit visit) {
  auto at = io.offset;
  for (const auto& piece : io.pieces) {
    for (std::uint64_t done = 0; done < piece.bytes; done += sector_bytes) {
      if (sectors-- == 0) return;
      visit(at, piece.at + done);
      at += sector_bytes;
    }
  }
}

}  // namespace

memory_file::memory_file(image bytes, std::uint32_t alignment)
    : now_(std::move(bytes)), durable_(now_), dirty_(now_.size() / sector_bytes + 1),
      alignment_(alignment) {}

memory_file::~memory_file() {
  held_ = false;
  while (!pending_.empty())
    finish(0);
}

void memory_file::submit(file_io& io) noexcept {
  pending_.push_back({&io, writes_finished_});
}

std::size_t memory_file::poll(std::chrono::milliseconds) noexcept {
  if (held_) return 0;
  auto count = pending_.size();
  if (shuffle_ != nullptr && count > 0) count = 1 + shuffle_->below(count);
  // What a completion submits waits for the next poll, as it would in the kernel.
  auto known = pending_.size();
  for (std::size_t i = 0; i < count; ++i, --known) {
    finish(shuffle_ != nullptr ? shuffle_->below(known) : 0);
  }
  return count;
}

void memory_file::fail(file_io::kind what, std::uint64_t nth, int error, bool for_good) {
  faults_.push_back({what, done(what) + nth, error, for_good});
}

void memory_file::crash_at_write(std::uint64_t nth, std::uint64_t sectors) noexcept {
  crash_at_ = done(file_io::kind::write) + nth;
  crash_sectors_ = sectors;
}

void memory_file::ail(file_io::kind what, std::uint64_t percent, int error) noexcept {
  ailments_[static_cast<std::size_t>(what)] = {percent, error};
}

int memory_file::check(const file_io& io) const noexcept {
  bool aligned = io.offset % alignment_ == 0;
  for (const auto& piece : io.pieces) {
    aligned = aligned && piece.bytes % alignment_ == 0 &&
              reinterpret_cast<std::uintptr_t>(piece.at) % alignment_ == 0;
  }
  assert(aligned);
  if (io.what == file_io::kind::sync) return 0;
  const auto bytes = bytes_of(io);
  if (io.offset > now_.size() || bytes > now_.size() - io.offset) {
    return io.what == file_io::kind::read ? ENODATA : ENOSPC;
  }
  return 0;
}

void memory_file::write_sectors(const file_io& io, std::uint64_t sectors) noexcept {
  const auto number = writes_finished_ + 1;
  each_sector(io, sectors, [&](std::uint64_t at, const std::byte* from) {
    std::memcpy(now_.data() + at, from, sector_bytes);
    dirty_[at / sector_bytes] = number;
  });
}

// Whether chance lets the request fail, and what it does all the same.
bool memory_file::ails(const request& of) noexcept {
  const auto percent = ailments_[static_cast<std::size_t>(of.io->what)].percent;
  if (percent == 0 || shuffle_->below(100) >= percent) return false;
  if (of.io->what == file_io::kind::write) {
    write_sectors(*of.io, shuffle_->below(bytes_of(*of.io) / sector_bytes + 1));
  } else if (of.io->what == file_io::kind::sync) {
    for (auto& sector : dirty_) {
      if (sector <= of.finished_before && shuffle_->below(2) == 0) sector = 0;
    }
  }
  return true;
}

int memory_file::carry_out(const request& of) noexcept {
  const auto& io = *of.io;
  const auto number = done_[static_cast<std::size_t>(io.what)]++;
  if (crashed_) return EIO;
  if (const auto error = check(io); error != 0) return error;
  for (const auto& scripted : faults_) {
    const bool due = scripted.at == number || (scripted.for_good && scripted.at < number);
    if (scripted.what == io.what && due) return scripted.error;
  }
  if (ails(of)) return ailments_[static_cast<std::size_t>(io.what)].error;
  switch (io.what) {
  case file_io::kind::read:
    each_sector(io, all_sectors, [this](std::uint64_t at, std::byte* to) {
      std::memcpy(to, now_.data() + at, sector_bytes);
    });
    break;
  case file_io::kind::write:
    if (crash_at_ == number) {
      write_sectors(io, crash_sectors_);
      crashed_ = true;
      return EIO;
    }
    write_sectors(io, all_sectors);
    ++writes_finished_;
    break;
  case file_io::kind::sync:
    for (std::size_t sector = 0; sector < dirty_.size(); ++sector) {
      if (dirty_[sector] == 0 || dirty_[sector] > of.finished_before) continue;
      const auto at = sector * sector_bytes;
      std::memcpy(durable_.data() + at, now_.data() + at, sector_bytes);
      dirty_[sector] = 0;
    }
    break;
  }
  return 0;
}

void memory_file::finish(std::size_t index) noexcept {
  const auto taken = pending_[index];
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  const auto error = carry_out(taken);
  taken.io->on_done(*taken.io, error);
}

memory_file::image memory_file::after_power_loss(seeded_random& random) const {
  auto found = durable_;
  for (std::size_t sector = 0; sector < dirty_.size(); ++sector) {
    if (dirty_[sector] == 0 || random.below(2) == 0) continue;
    std::memcpy(found.data() + sector * sector_bytes, now_.data() + sector * sector_bytes,
                sector_bytes);
  }
  land_some(found, random);
  return found;
}

memory_file::image memory_file::after_kill(seeded_random& random) const {
  auto found = now_;
  land_some(found, random);
  return found;
}

// Of the writes still under way each sector by chance.
void memory_file::land_some(image& found, seeded_random& random) const {
  for (const auto& under_way : pending_) {
    const auto& io = *under_way.io;
    if (io.what != file_io::kind::write || crashed_ || check(io) != 0) continue;
    each_sector(io, all_sectors, [&](std::uint64_t at, const std::byte* from) {
      if (random.below(2) == 0) std::memcpy(found.data() + at, from, sector_bytes);
    });
  }
}

}  // namespace kvd
