#pragma once
// An answer that somebody waits for, carried through a message.
//
// CAF copies messages and drops them when an actor is gone, so the answer is shared and answers
// itself: if the last copy dies unanswered, the waiter gets errc::internal instead of nothing.
// The first answer counts, later ones are ignored. Threads: any.

#include <atomic>
#include <functional>
#include <memory>

#include "core/error.hpp"

namespace kvd {

template<class T>
class reply {
public:
  using receiver = std::function<void(result<T>)>;

  reply() = default;
  explicit reply(receiver to) : state_(std::make_shared<state>(std::move(to))) {}

  void operator()(result<T> outcome) const {
    if (state_) state_->answer(std::move(outcome));
  }

private:
  // shared_ptr because a message may be copied; the last copy is the guard.
  struct state {
    explicit state(receiver receive) : to(std::move(receive)) {}
    ~state() { answer(fail(errc::internal, "the request was dropped before it was answered")); }
    void answer(result<T> outcome) {
      if (!answered.exchange(true)) to(std::move(outcome));
    }
    receiver to;
    std::atomic<bool> answered{false};
  };
  std::shared_ptr<state> state_;
};

}  // namespace kvd
