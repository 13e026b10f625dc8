// A suspended coroutine as a value: whoever holds the Continuation resumes it, once, from any
// thread; it goes on later, on its own executor, never inside the call. The one building block of
// every wait in the runtime (mailbox, timer, ask, gate, offload).
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::runtime {

// Destroying one that was not resumed unwinds its coroutine through that coroutine's io_context,
// which must still exist.
template <class... Values>
class Continuation {
 public:
    Continuation() = default;

    template <class Handler>
    [[nodiscard]] static Continuation of_handler(Handler handler) {
        struct Posted final : Target {
            explicit Posted(Handler h) : handler_(std::move(h)) {}
            void resume(Values... values) override {
                auto executor = boost::asio::get_associated_executor(handler_);
                boost::asio::post(executor, [handler = std::move(handler_),
                                             ... moved = std::move(values)]() mutable {
                    std::move(handler)(std::move(moved)...);
                });
            }
            Handler handler_;
        };
        return Continuation(std::make_unique<Posted>(std::move(handler)));
    }

    // Calls `function` inside resume(); for functions that only pass the wake-up on.
    template <class Function>
    [[nodiscard]] static Continuation of_call(Function function) {
        struct Called final : Target {
            explicit Called(Function f) : function_(std::move(f)) {}
            void resume(Values... values) override { function_(std::move(values)...); }
            Function function_;
        };
        return Continuation(std::make_unique<Called>(std::move(function)));
    }

    explicit operator bool() const noexcept { return target_ != nullptr; }

    void resume(Values... values) {
        TROUPE_ASSERT(target_ != nullptr, "a continuation is resumed once");
        const auto target = std::move(target_);
        target->resume(std::move(values)...);
    }

 private:
    struct Target {
        virtual ~Target() = default;
        virtual void resume(Values... values) = 0;
    };

    explicit Continuation(std::unique_ptr<Target> target) : target_(std::move(target)) {}

    std::unique_ptr<Target> target_;
};

// Suspends the calling coroutine and hands its Continuation to `store`, which runs after the
// suspension; gives what resume() was given: nothing, or one value.
template <class... Values, class Store>
[[nodiscard]] auto suspend(Store store) {
    return boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void(Values...)>(
        [store = std::move(store)](auto handler) mutable {
            store(Continuation<Values...>::of_handler(std::move(handler)));
        },
        boost::asio::use_awaitable);
}

}  // namespace troupe::runtime
