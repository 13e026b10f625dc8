// Work that may block or takes long (file reads, tokenising a long prompt), done on one or two
// helper lanes so that the caller's lane never waits. Jobs are plain functions; a job goes to the
// helper with the fewest.
//
//     auto job = [text] { return tokenize(text); };  // named: see run()
//     Result<Tokens> tokens = co_await offload.run(std::move(job));
//
// The caller bounds its jobs; above `jobs_max` unfinished ones is a bug and asserts. A job owns
// what it uses: its caller may be unwound while it runs.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <deque>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/assert.hpp"
#include "runtime/continuation.hpp"
#include "runtime/lane.hpp"

namespace troupe::runtime {

class Offload {
 public:
    // `helpers` is not empty; the lanes belong to the caller and outlive this.
    Offload(const std::vector<Lane*>& helpers, std::size_t jobs_max);

    // From any lane: runs `function` on a helper and gives what it returns (not void), back on the
    // caller's executor. What it throws is thrown here.
    template <class Function>
    [[nodiscard]] boost::asio::awaitable<std::invoke_result_t<Function&>> run(Function function) {
        using Value = std::invoke_result_t<Function&>;
        Helper& helper = least_loaded();
        // Named, because GCC 12 destroys a temporary with captures twice when it stands in a
        // co_await.
        auto start = [this, &helper,
                      work = std::move(function)](Continuation<Outcome<Value>> caller) mutable {
            boost::asio::post(helper.lane.context(), [this, &helper, work = std::move(work),
                                                      caller = std::move(caller)]() mutable {
                auto finished = call<Value>(work);
                job_done(helper);
                caller.resume(std::move(finished));
            });
        };
        Outcome<Value> outcome = co_await suspend<Outcome<Value>>(std::move(start));
        if (outcome.error) std::rethrow_exception(outcome.error);
        co_return std::move(*outcome.value);
    }

    // Jobs not yet finished, from any thread.
    [[nodiscard]] std::size_t jobs() const noexcept;

 private:
    struct Helper {
        explicit Helper(Lane& l) : lane(l) {}
        Lane& lane;
        std::atomic<std::size_t> jobs{0};
    };

    template <class Value>
    struct Outcome {
        std::exception_ptr error;
        std::optional<Value> value;
    };

    template <class Value, class Function>
    static Outcome<Value> call(Function& function) {
        try {
            return {nullptr, function()};
        } catch (...) {
            return {std::current_exception(), std::nullopt};
        }
    }

    Helper& least_loaded();
    void job_done(Helper& helper) noexcept;

    const std::size_t jobs_max_;
    std::atomic<std::size_t> jobs_{0};
    std::deque<Helper> helpers_;  // never grows: helpers are neither copied nor moved
};

}  // namespace troupe::runtime
