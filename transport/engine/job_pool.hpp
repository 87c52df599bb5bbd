#pragma once
// Reusable jobs: each keeps the capacity of its lists, so a warmed-up data path allocates nothing.
//
// Threads: any. Bounded: take() returns nullptr when `max` jobs are out; full is an answer.

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace kvd {

template<class Job>
class job_pool {
public:
  explicit job_pool(std::size_t max) : max_(max) { free_.reserve(max); }

  // nullptr when all are in use.
  Job* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      if (jobs_.size() == max_) return nullptr;
      jobs_.push_back(std::make_unique<Job>());
      return jobs_.back().get();
    }
    auto* job = free_.back();
    free_.pop_back();
    return job;
  }
  // REQUIRES: taken from here; its owner has cleared it.
  void give_back(Job* job) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(job);
  }
  std::size_t in_use() const noexcept {
    const std::lock_guard lock(mutex_);
    return jobs_.size() - free_.size();
  }

private:
  const std::size_t max_;
  mutable std::mutex mutex_;                // a pointer moves; taken once a request
  std::vector<std::unique_ptr<Job>> jobs_;  // GUARDED_BY(mutex_)
  std::vector<Job*> free_;                  // GUARDED_BY(mutex_), capacity is max_
};

}  // namespace kvd
