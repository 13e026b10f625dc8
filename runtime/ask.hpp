// Request and reply. The asker's message carries a Replier; the asker sleeps until it is used.
// Meant for two actors of one lane, where both hops are posts to the running io_context and cost no
// wake-up through the operating system.
//
//     struct CacheStep { std::vector<Release> release; Replier<CacheStepDone> reply; };
//
//     std::optional<CacheStepDone> done = co_await ask<CacheStepDone>(
//         [&](Replier<CacheStepDone> reply) { cache.send(CacheStep{release, std::move(reply)}); });
//
//     void on(CacheStep& step) { step.reply.answer(core.apply(step)); }  // the other actor
#pragma once

#include <optional>
#include <utility>

#include "runtime/continuation.hpp"

namespace troupe::runtime {

// The right to answer once. One that is dropped (its actor ended, its mailbox was closed) wakes the
// asker with nothing, so that no asker sleeps for ever.
template <class Reply>
class Replier {
 public:
    explicit Replier(Continuation<std::optional<Reply>> asker) : asker_(std::move(asker)) {}
    Replier(Replier&&) noexcept = default;
    Replier& operator=(Replier&& other) noexcept {
        if (this != &other) {
            drop();
            asker_ = std::move(other.asker_);
        }
        return *this;
    }
    ~Replier() { drop(); }

    void answer(Reply reply) { asker_.resume(std::move(reply)); }

 private:
    void drop() {
        if (asker_) asker_.resume(std::nullopt);
    }

    Continuation<std::optional<Reply>> asker_;
};

// `send` takes the Replier by value and puts it into a message. Nothing comes back only if the
// answering actor is gone.
template <class Reply, class Send>
[[nodiscard]] boost::asio::awaitable<std::optional<Reply>> ask(Send send) {
    return suspend<std::optional<Reply>>(
        [send = std::move(send)](Continuation<std::optional<Reply>> asker) mutable {
            send(Replier<Reply>(std::move(asker)));
        });
}

}  // namespace troupe::runtime
