#include "transport/device/host_device.hpp"

#include <algorithm>
#include <deque>
#include <latch>
#include <mutex>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "core/limits.hpp"
#include "core/random.hpp"
#include "tests/transport/device/tracked_job.hpp"

using namespace kvd;
using kvd::test::tracked_job;

namespace {

constexpr std::uint64_t mib = 1 << 20;

struct copy_fixture {
  fake_clock time;
  copy_metrics metrics;
  std::vector<std::byte> source = pattern(24 * mib);
  std::vector<std::byte> target = std::vector<std::byte>(24 * mib);

  static host_device_options options(unsigned threads, std::size_t jobs_max) {
    return {.threads = threads, .jobs_max = jobs_max, .numa_node = -1};
  }
  static std::vector<std::byte> pattern(std::size_t bytes) {
    std::vector<std::byte> filled(bytes);
    seeded_random(7).fill(filled);
    return filled;
  }
  bool copied(std::size_t begin, std::size_t bytes) const {
    const auto from = source.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::equal(from, from + static_cast<std::ptrdiff_t>(bytes),
                      target.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  bool untouched(std::size_t begin, std::size_t bytes) const {
    const auto from = target.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::all_of(from, from + static_cast<std::ptrdiff_t>(bytes),
                       [](std::byte b) { return b == std::byte{0}; });
  }
};

// Keeps the only copy thread busy until told otherwise, so that a queue can form behind it.
struct gate {
  std::byte from{1};
  std::byte to{0};
  std::binary_semaphore entered{0};
  std::binary_semaphore open{0};
  tracked_job job{copy_direction::load, &to, &from, 1};
  explicit gate(device& target) {
    job.before_chunk = [this] {
      entered.release();
      open.acquire();
      return false;
    };
    REQUIRE(target.submit(job.job));
    entered.acquire();
  }
};

}  // namespace

TEST_CASE("a job copies every range and ends once") {
  copy_fixture f;
  host_device device(copy_fixture::options(2, 16), f.time, f.metrics);
  tracked_job job;
  for (std::size_t i = 0; i < 3000; ++i) {
    job.job.ranges.push_back({f.target.data() + i * 4096, f.source.data() + i * 4096, 4096});
  }
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::done);
  CHECK(job.job.total_bytes == 3000 * 4096);
  CHECK(f.copied(0, 3000 * 4096));
  CHECK(f.untouched(3000 * 4096, 4096));
  CHECK(job.ends == 1);
}

TEST_CASE("a range larger than a chunk arrives whole, at odd addresses too") {
  copy_fixture f;
  host_device device(copy_fixture::options(3, 16), f.time, f.metrics);
  tracked_job job(copy_direction::save, f.target.data() + 3, f.source.data() + 3, 23 * mib + 5);
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::done);
  CHECK(f.copied(3, 23 * mib + 5));
  CHECK(f.untouched(0, 3));
  CHECK(f.untouched(23 * mib + 8, 64));
}

TEST_CASE("a job without bytes ends as done") {
  copy_fixture f;
  host_device device(copy_fixture::options(1, 16), f.time, f.metrics);
  tracked_job job;
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::done);
  job.job.ranges.push_back({f.target.data(), f.source.data(), 0});
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::done);
}

TEST_CASE("all threads share one large job") {
  copy_fixture f;
  host_device device(copy_fixture::options(3, 16), f.time, f.metrics);
  // Nobody passes before three threads are inside the same job.
  std::latch inside(3);
  std::atomic<int> chunks{0};
  tracked_job job(copy_direction::load, f.target.data(), f.source.data(), 24 * mib);
  job.before_chunk = [&] {
    if (chunks.fetch_add(1) < 3) inside.arrive_and_wait();
    return false;
  };
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::done);
  CHECK(f.copied(0, 24 * mib));
}

TEST_CASE("a small load overtakes a large one that has begun") {
  copy_fixture f;
  host_device device(copy_fixture::options(1, 16), f.time, f.metrics);
  tracked_job small(copy_direction::load, f.target.data() + 20 * mib, f.source.data() + 20 * mib,
                    4096);
  tracked_job large(copy_direction::load, f.target.data(), f.source.data(), 16 * mib);
  bool small_first = false;
  int chunks = 0;
  large.before_chunk = [&] {
    if (++chunks == 2) CHECK(device.submit(small.job));
    return false;
  };
  large.at_end = [&] { small_first = small.ends == 1; };
  REQUIRE(device.submit(large.job));
  CHECK(large.wait() == copy_outcome::done);
  CHECK(small_first);
  CHECK(chunks > 3);
}

TEST_CASE("loads go first and saves still get their share") {
  copy_fixture f;
  host_device device(copy_fixture::options(1, 64), f.time, f.metrics);
  std::string order;  // written by the only copy thread
  std::deque<tracked_job> jobs;
  {
    gate first(device);
    for (int i = 0; i < 24; ++i) {
      const bool load = i >= 8;  // the saves were there before
      auto& job = jobs.emplace_back(load ? copy_direction::load : copy_direction::save,
                                    f.target.data() + i, f.source.data() + i, 1);
      job.at_end = [&order, load] { order += load ? 'L' : 'S'; };
      REQUIRE(device.submit(job.job));
    }
    CHECK(f.metrics.load_queue.value() == 16);
    CHECK(f.metrics.save_queue.value() == 8);
    CHECK(f.metrics.inflight.value() == 1);
    first.open.release();
    first.job.wait();
  }
  for (auto& job : jobs) {
    CHECK(job.wait() == copy_outcome::done);
  }
  CHECK(order.starts_with("LLLS"));  // the gate was the first of four loads
  CHECK(order.substr(4).starts_with("LLLLSLLLLSLLLLS"));
  CHECK(std::count(order.begin(), order.end(), 'S') == 8);
  CHECK(f.metrics.load_queue.value() == 0);
  CHECK(f.metrics.save_queue.value() == 0);
}

TEST_CASE("small jobs go before a large one of the same direction but do not starve it") {
  copy_fixture f;
  host_device device(copy_fixture::options(1, 64), f.time, f.metrics);
  std::string order;
  tracked_job large(copy_direction::save, f.target.data(), f.source.data(), 6 * mib);
  large.before_chunk = [&order] {
    order += 'L';
    return false;
  };
  std::deque<tracked_job> jobs;
  gate first(device);
  REQUIRE(device.submit(large.job));
  for (std::size_t i = 0; i < 20; ++i) {
    auto& job = jobs.emplace_back(copy_direction::save, f.target.data() + 8 * mib + i,
                                  f.source.data() + 8 * mib + i, 1);
    job.at_end = [&order] { order += 's'; };
    REQUIRE(device.submit(job.job));
  }
  first.open.release();
  first.job.wait();
  for (auto& job : jobs) {
    CHECK(job.wait() == copy_outcome::done);
  }
  CHECK(large.wait() == copy_outcome::done);
  CHECK(order == "ssssssssLssssssssLssssL");
}

TEST_CASE("a job whose deadline has passed is cancelled and writes nothing") {
  copy_fixture f;
  host_device device(copy_fixture::options(1, 16), f.time, f.metrics);
  tracked_job job(copy_direction::load, f.target.data(), f.source.data(), mib);
  job.job.deadline = f.time.now();
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::cancelled);
  CHECK(f.untouched(0, mib));
}

TEST_CASE("a deadline that passes in the middle stops the job") {
  copy_fixture f;
  host_device device(copy_fixture::options(1, 16), f.time, f.metrics);
  tracked_job job(copy_direction::load, f.target.data(), f.source.data(), 24 * mib);
  job.job.deadline = f.time.now() + std::chrono::seconds(1);
  int chunks = 0;
  job.before_chunk = [&] {
    if (++chunks == 3) f.time.advance(std::chrono::seconds(1));
    return false;
  };
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::cancelled);
  CHECK(chunks == 3);
  CHECK(f.copied(0, 6 * mib));
  CHECK(f.untouched(6 * mib, 18 * mib));
}

TEST_CASE("a job that is told to stop writes nothing after its end") {
  copy_fixture f;
  host_device device(copy_fixture::options(3, 16), f.time, f.metrics);
  std::vector<std::byte> at_end;
  tracked_job job(copy_direction::load, f.target.data(), f.source.data(), 24 * mib);
  std::atomic<int> chunks{0};
  job.before_chunk = [&] { return chunks.fetch_add(1) >= 4; };
  job.at_end = [&] { at_end = f.target; };
  REQUIRE(device.submit(job.job));
  CHECK(job.wait() == copy_outcome::cancelled);
  tracked_job next(copy_direction::load, f.target.data(), f.source.data(), 0);
  REQUIRE(device.submit(next.job));
  next.wait();
  CHECK(at_end == f.target);
  CHECK(job.ends == 1);
}

TEST_CASE("a full queue refuses a job and forgets it") {
  copy_fixture f;
  host_device device(copy_fixture::options(1, 2), f.time, f.metrics);
  gate first(device);
  tracked_job jobs[4];
  for (auto& job : jobs) {
    job.job.direction = copy_direction::load;
  }
  CHECK(device.submit(jobs[0].job));
  CHECK(device.submit(jobs[1].job));
  CHECK_FALSE(device.submit(jobs[2].job));
  // The other direction has a queue of its own.
  jobs[3].job.direction = copy_direction::save;
  CHECK(device.submit(jobs[3].job));
  first.open.release();
  first.job.wait();
  jobs[0].wait();
  jobs[1].wait();
  jobs[3].wait();
  CHECK(jobs[2].ends == 0);
}

TEST_CASE("a device that goes away ends every job as cancelled") {
  copy_fixture f;
  std::deque<tracked_job> jobs(20);
  {
    host_device device(copy_fixture::options(1, 64), f.time, f.metrics);
    gate first(device);
    for (auto& job : jobs) {
      job.job.ranges.push_back({f.target.data(), f.source.data(), mib});
      REQUIRE(device.submit(job.job));
    }
    first.open.release();
    first.job.wait();
  }
  int cancelled = 0;
  for (auto& job : jobs) {
    CHECK(job.ends == 1);
    if (job.wait() == copy_outcome::cancelled) ++cancelled;
  }
  CHECK(f.metrics.save_queue.value() == 0);
  CHECK(f.metrics.inflight.value() == 0);
  CHECK(cancelled <= 20);
}

TEST_CASE("a job may be submitted again from its own end") {
  copy_fixture f;
  host_device device(copy_fixture::options(2, 16), f.time, f.metrics);
  tracked_job job(copy_direction::save, f.target.data(), f.source.data(), mib);
  std::atomic<int> rounds{0};
  std::binary_semaphore over{0};
  job.job.owner = &job;
  job.at_end = [&] {
    if (rounds.fetch_add(1) < 99) {
      CHECK(device.submit(job.job));
    } else {
      over.release();
    }
  };
  REQUIRE(device.submit(job.job));
  over.acquire();
  CHECK(rounds == 100);
}

TEST_CASE("many threads submitting jobs of all sizes lose none and mix up no bytes") {
  copy_fixture f;
  constexpr std::size_t submitters = 4;
  constexpr std::size_t rounds = 25;
  {
    host_device device(copy_fixture::options(3, 4096), f.time, f.metrics);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < submitters; ++t) {
      threads.emplace_back([&, t] {
        seeded_random random(t);
        const auto begin = t * 6 * mib;
        for (std::size_t i = 0; i < rounds; ++i) {
          tracked_job job;
          job.job.direction = random.below(2) == 0 ? copy_direction::save : copy_direction::load;
          const auto bytes = 1 + random.below(random.below(4) == 0 ? 6 * mib : 32 << 10);
          const auto piece = 1 + random.below(bytes);
          for (std::uint64_t at = 0; at < bytes; at += piece) {
            job.job.ranges.push_back({f.target.data() + begin + at, f.source.data() + begin + at,
                                      std::min(piece, bytes - at)});
          }
          if (random.below(5) == 0) {
            job.before_chunk = [] { return true; };
          }
          const bool stopped = static_cast<bool>(job.before_chunk);
          if (!device.submit(job.job)) std::abort();
          const auto expected = stopped ? copy_outcome::cancelled : copy_outcome::done;
          if (job.wait() != expected || job.ends != 1) std::abort();
          if (!stopped && !f.copied(begin, bytes)) std::abort();
        }
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
  }
  CHECK(f.metrics.save_queue.value() == 0);
  CHECK(f.metrics.load_queue.value() == 0);
  CHECK(f.metrics.inflight.value() == 0);
}
