#pragma once
// The twin of a file in memory: scripted faults, reordering and crashes, for tests and fuzzing.
//
// Writes change a volatile image; sync carries what had finished before it was submitted into a
// durable one. A crash gives the image that a restart would find. Requests are done by poll(), on
// the calling thread; nothing waits.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/random.hpp"
#include "storage/block_file.hpp"

namespace kvd {

class memory_file final : public block_file {
public:
  using image = std::vector<std::byte>;

  explicit memory_file(image bytes, std::uint32_t alignment = 512);
  ~memory_file() override;
  memory_file(const memory_file&) = delete;
  memory_file& operator=(const memory_file&) = delete;

  void submit(file_io& io) noexcept override;
  std::size_t poll(std::chrono::milliseconds wait) noexcept override;
  void wake() noexcept override {}
  std::uint64_t bytes() const noexcept override { return now_.size(); }
  std::uint32_t alignment() const noexcept override { return alignment_; }
  std::string_view backend() const noexcept override { return "memory"; }

  // -- the script; counts begin with the call, 0 is the next request --
  // Requests finish in random order, some at a time, from now on; null: all, as submitted.
  void shuffle(seeded_random* random) noexcept { shuffle_ = random; }
  // poll() finishes nothing while it is set.
  void hold(bool held) noexcept { held_ = held; }
  // The nth request of the kind does nothing and ends with the error; only that one, or all after.
  void fail(file_io::kind what, std::uint64_t nth, int error, bool for_good = false);
  // From now on `percent` of the requests of the kind, by chance, end with the error; 0: none. Of
  // such a write some first sectors may have landed; what such a sync was to carry may be lost, and
  // no later sync carries it. REQUIRES: shuffle()
  void ail(file_io::kind what, std::uint64_t percent, int error) noexcept;
  // Of the nth write only the first sectors land; then nothing happens any more, as after a kill.
  void crash_at_write(std::uint64_t nth, std::uint64_t sectors) noexcept;
  // Nothing happens any more; requests end with EIO.
  void crash() noexcept { crashed_ = true; }

  bool crashed() const noexcept { return crashed_; }
  std::uint64_t done(file_io::kind what) const noexcept {
    return done_[static_cast<std::size_t>(what)];
  }
  std::size_t pending() const noexcept { return pending_.size(); }

  // What the disk would hold: every write that was done.
  const image& contents() const noexcept { return now_; }
  image& contents() noexcept { return now_; }
  // After the death of the process: what was done, and of the writes still under way some sectors.
  image after_kill(seeded_random& random) const;
  // After a power loss: each sector that was not synced kept or lost by chance, those of requests
  // still under way as well.
  image after_power_loss(seeded_random& random) const;

private:
  struct request {
    file_io* io;
    std::uint64_t finished_before;  // of writes, when it was submitted
  };
  struct fault {
    file_io::kind what;
    std::uint64_t at;
    int error;
    bool for_good;
  };

  struct ailment {
    std::uint64_t percent = 0;
    int error = 0;
  };

  int carry_out(const request& of) noexcept;
  bool ails(const request& of) noexcept;
  void land_some(image& found, seeded_random& random) const;
  int check(const file_io& io) const noexcept;
  void write_sectors(const file_io& io, std::uint64_t sectors) noexcept;
  void finish(std::size_t index) noexcept;

  image now_;
  image durable_;
  std::vector<std::uint64_t> dirty_;  // a sector's last write by number; 0: durable
  std::uint32_t alignment_;
  std::deque<request> pending_;
  std::vector<fault> faults_;
  ailment ailments_[3];  // by kind
  std::uint64_t done_[3] = {0, 0, 0};
  std::uint64_t writes_finished_ = 0;
  std::optional<std::uint64_t> crash_at_;
  std::uint64_t crash_sectors_ = 0;
  seeded_random* shuffle_ = nullptr;
  bool held_ = false;
  bool crashed_ = false;
};

}  // namespace kvd
