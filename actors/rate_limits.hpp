// How much each principal may ask in a minute, in requests and in tokens: two buckets that fill
// evenly and hold a minute's worth. Tokens are charged when a request has ended, so the last one
// may overdraw its bucket, and the next waits for it. Pure; owned by a SessionHub.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "actors/messages.hpp"
#include "runtime/clock.hpp"

namespace troupe::actors {

class RateLimits {
 public:
    // What is left of one limit, as x-ratelimit-* headers say it.
    struct Budget {
        std::uint32_t limit = 0;  // a minute; 0: there is none
        std::uint32_t remaining = 0;
        std::int64_t reset_ms = 0;  // until all of it is there again
    };
    struct State {
        Budget requests;
        Budget tokens;
    };

    // Takes `requests` from the budget and gives nothing; or takes nothing and says how many
    // milliseconds to wait. `now` never goes back.
    [[nodiscard]] std::optional<std::int64_t> take(const Principal& principal,
                                                   std::uint32_t requests, runtime::TimePoint now);
    void charge(const Principal& principal, std::uint32_t tokens, runtime::TimePoint now);
    [[nodiscard]] State state(const Principal& principal, runtime::TimePoint now);

 private:
    struct Account {
        double requests = 0;  // left
        double tokens = 0;
        runtime::TimePoint at;
    };
    // Filled up to now; null where the principal has no limits.
    [[nodiscard]] Account* account(const Principal& principal, runtime::TimePoint now);

    std::unordered_map<std::uint64_t, Account> accounts_;  // of keys with limits: as many as those
};

}  // namespace troupe::actors
