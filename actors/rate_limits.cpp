#include "actors/rate_limits.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace troupe::actors {
namespace {

constexpr double kMinute_ms = 60'000;

double filled(double left, std::uint32_t limit, runtime::Duration passed) {
    const std::chrono::duration<double, std::ratio<60>> minutes = passed;
    const double gained = minutes.count() * limit;
    return std::min(static_cast<double>(limit), left + gained);
}

// Until the bucket holds `wanted`; at least a millisecond where it does not.
std::int64_t wait_ms(double left, double wanted, std::uint32_t limit) {
    if (left >= wanted) return 0;
    return std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil((wanted - left) * kMinute_ms / limit)));
}

RateLimits::Budget budget(double left, std::uint32_t limit) {
    if (limit == 0) return {};
    return {.limit = limit,
            .remaining = static_cast<std::uint32_t>(std::max(0.0, std::floor(left))),
            .reset_ms = wait_ms(left, limit, limit)};
}

}  // namespace

RateLimits::Account* RateLimits::account(const Principal& principal, runtime::TimePoint now) {
    if (principal.requests_per_minute == 0 && principal.tokens_per_minute == 0) return nullptr;
    const Account full{.requests = static_cast<double>(principal.requests_per_minute),
                       .tokens = static_cast<double>(principal.tokens_per_minute),
                       .at = now};
    Account& account = accounts_.try_emplace(principal.id, full).first->second;
    const runtime::Duration passed = now - account.at;
    account.requests = filled(account.requests, principal.requests_per_minute, passed);
    account.tokens = filled(account.tokens, principal.tokens_per_minute, passed);
    account.at = now;
    return &account;
}

std::optional<std::int64_t> RateLimits::take(const Principal& principal, std::uint32_t requests,
                                             runtime::TimePoint now) {
    Account* found = account(principal, now);
    if (found == nullptr) return std::nullopt;
    std::int64_t wait = 0;
    // A call of more requests than a minute's worth is let through by a full bucket.
    const double wanted = std::min<double>(requests, principal.requests_per_minute);
    if (principal.requests_per_minute > 0)
        wait = wait_ms(found->requests, wanted, principal.requests_per_minute);
    if (principal.tokens_per_minute > 0)
        wait = std::max(wait, wait_ms(found->tokens, 1, principal.tokens_per_minute));
    if (wait > 0) return wait;
    found->requests -= requests;
    return std::nullopt;
}

void RateLimits::charge(const Principal& principal, std::uint32_t tokens, runtime::TimePoint now) {
    if (Account* found = account(principal, now)) found->tokens -= tokens;
}

RateLimits::State RateLimits::state(const Principal& principal, runtime::TimePoint now) {
    const Account* found = account(principal, now);
    if (found == nullptr) return {};
    return {.requests = budget(found->requests, principal.requests_per_minute),
            .tokens = budget(found->tokens, principal.tokens_per_minute)};
}

}  // namespace troupe::actors
