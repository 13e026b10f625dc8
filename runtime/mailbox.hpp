// A mailbox: many threads send, one coroutine receives. Two lanes, control before normal, each
// first in, first out; everything waiting is taken in one go. The only file of the product with a
// mutex, held for a push or a swap.
//
//     struct Submit { int id; };
//     struct Shutdown {};
//     using Message = std::variant<Submit, Shutdown>;
//
//     // waiting_max submits, each sent once, plus one Shutdown
//     Mailbox<Message> inbox({.normal_max = waiting_max, .control_max = 1});
//
//     asio::awaitable<void> run(Mailbox<Message>& inbox) {
//         std::vector<Message> batch;  // reused: no allocation once it has grown
//         while (co_await inbox.receive_all(batch)) {
//             for (Message& message : batch) std::visit(core, message);
//         }
//     }
//
// Bounds: limits stand at the edge of the program, so each owner can write its capacity as a sum
// over those who send; a full lane is a bug and asserts.
// Wake-ups: a sender posts to the receiver's io_context only when it finds the receiver asleep, so
// there is at most one post for each time the receiver went to sleep.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/assert.hpp"
#include "runtime/continuation.hpp"
#include "runtime/lane.hpp"

namespace troupe::runtime {

struct MailboxCapacity {
    std::size_t normal_max = 0;
    std::size_t control_max = 0;
};

template <class Message>
class Mailbox {
    static_assert(std::is_nothrow_move_constructible_v<Message> &&
                      std::is_nothrow_move_assignable_v<Message>,
                  "a message is moved under the lock and must not throw there");

 public:
    explicit Mailbox(MailboxCapacity capacity) : capacity_(capacity) {}
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;

    // From any thread. False: the mailbox is closed and the message was dropped.
    bool send(Message message) { return push(normal_, capacity_.normal_max, std::move(message)); }
    // As send(); overtakes everything that was sent by send() and has not been taken.
    bool send_control(Message message) {
        return push(control_, capacity_.control_max, std::move(message));
    }

    // From any thread. Later sends are dropped; the receiver gets what is left, then the end.
    void close() {
        Continuation<> sleeper;
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
            sleeper = std::exchange(sleeper_, {});
        }
        if (sleeper) sleeper.resume();
    }

    // The rest is for the receiver: one coroutine at a time.

    // Waits until there is a message, then replaces the content of `into` by everything waiting,
    // control messages first. False, with `into` empty: closed, and nothing is left.
    [[nodiscard]] boost::asio::awaitable<bool> receive_all(std::vector<Message>& into) {
        for (;;) {
            const Taken taken = take(into);
            if (taken != Taken::nothing) co_return taken == Taken::messages;
            co_await sleep();
        }
    }

    // As receive_all(), but at `deadline` gives true with `into` empty if nothing has come.
    // `lane` is the one the receiver runs on.
    [[nodiscard]] boost::asio::awaitable<bool> receive_all_until(Lane& lane, TimePoint deadline,
                                                                 std::vector<Message>& into) {
        Taken taken = take(into);
        if (taken == Taken::nothing && lane.now() < deadline) {
            const auto alarm =
                lane.timers().add(deadline, Continuation<bool>::of_call([this](bool) { wake(); }));
            co_await sleep();
            (void)lane.timers().remove(alarm);
            taken = take(into);
        }
        co_return taken != Taken::closed;
    }

    // Replaces the content of `into` by what is there now, without waiting; gives its number.
    std::size_t drain(std::vector<Message>& into) {
        (void)take(into);
        return into.size();
    }

    // Times a sender had to wake the receiver, from any thread.
    [[nodiscard]] std::uint64_t wakes() const {
        const std::lock_guard lock(mutex_);
        return wakes_;
    }

 private:
    enum class Taken { nothing, messages, closed };

    bool push(std::vector<Message>& queue, std::size_t messages_max, Message message) {
        Continuation<> sleeper;
        {
            const std::lock_guard lock(mutex_);
            if (closed_) return false;
            TROUPE_ASSERT(queue.size() < messages_max, "mailbox full");
            queue.push_back(std::move(message));
            sleeper = std::exchange(sleeper_, {});
            if (sleeper) ++wakes_;
        }
        if (sleeper) sleeper.resume();
        return true;
    }

    Taken take(std::vector<Message>& into) {
        into.clear();
        const std::lock_guard lock(mutex_);
        if (control_.empty()) {
            into.swap(normal_);
        } else {
            into.swap(control_);
            into.insert(into.end(), std::make_move_iterator(normal_.begin()),
                        std::make_move_iterator(normal_.end()));
            normal_.clear();
        }
        if (!into.empty()) return Taken::messages;
        return closed_ ? Taken::closed : Taken::nothing;
    }

    boost::asio::awaitable<void> sleep() {
        return suspend<>([this](Continuation<> receiver) {
            {
                const std::lock_guard lock(mutex_);
                TROUPE_ASSERT(!sleeper_, "a mailbox has one receiver");
                if (control_.empty() && normal_.empty() && !closed_) {
                    sleeper_ = std::move(receiver);
                    return;
                }
            }
            receiver.resume();  // something came between the look and the suspension
        });
    }

    void wake() {
        Continuation<> sleeper;
        {
            const std::lock_guard lock(mutex_);
            sleeper = std::exchange(sleeper_, {});
        }
        if (sleeper) sleeper.resume();
    }

    const MailboxCapacity capacity_;
    mutable std::mutex mutex_;
    std::vector<Message> normal_;
    std::vector<Message> control_;
    Continuation<> sleeper_;  // the receiver, while it waits
    std::uint64_t wakes_ = 0;
    bool closed_ = false;
};

}  // namespace troupe::runtime
