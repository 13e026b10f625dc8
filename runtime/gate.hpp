// Counts work in flight and lets its owner wait until there is none: connections of a listener,
// writes of a session, requests of a hub. Belongs to one lane.
//
//     Gate::Pass pass = gate.enter();  // held by the work, for example in its coroutine's frame
//     ...
//     co_await gate.close();           // nobody enters any more; all have left
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/base/assert.hpp"
#include "runtime/continuation.hpp"

namespace troupe::runtime {

class Gate {
 public:
    class Pass {
     public:
        Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
        Pass& operator=(Pass&& other) noexcept {
            std::swap(gate_, other.gate_);
            return *this;
        }
        ~Pass() {
            if (gate_ != nullptr) gate_->leave();
        }

     private:
        friend class Gate;
        explicit Pass(Gate& gate) noexcept : gate_(&gate) { ++gate.count_; }
        Gate* gate_;
    };

    Gate() = default;
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    ~Gate() { TROUPE_ASSERT(count_ == 0, "work outlives its gate"); }

    // Callers look at closed() first.
    [[nodiscard]] Pass enter() {
        TROUPE_ASSERT(!closed_, "the gate is closed");
        return Pass(*this);
    }

    [[nodiscard]] bool closed() const noexcept { return closed_; }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    // Closes at the call's first step and waits for zero. Any number may wait.
    [[nodiscard]] boost::asio::awaitable<void> close() {
        closed_ = true;
        if (count_ == 0) co_return;
        co_await suspend<>(
            [this](Continuation<> closer) { closers_.push_back(std::move(closer)); });
    }

 private:
    void leave() {
        if (--count_ > 0 || !closed_) return;
        for (Continuation<>& closer : std::exchange(closers_, {}))
            closer.resume();
    }

    std::size_t count_ = 0;
    bool closed_ = false;
    std::vector<Continuation<>> closers_;
};

}  // namespace troupe::runtime
