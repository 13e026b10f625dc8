#include "runtime/trace.hpp"

#include <fmt/format.h>

#include "runtime/base/assert.hpp"
#include "runtime/base/random.hpp"

namespace troupe::runtime {

namespace {

std::uint64_t mixed(std::uint64_t digest, std::uint64_t value) {
    return mix_bits(digest + 0x9e3779b97f4a7c15u + value);
}

}  // namespace

Trace::Trace(std::size_t events_max) : events_max_(events_max) {
    TROUPE_ASSERT(events_max > 0);
    ring_.reserve(events_max);
}

void Trace::record(const TraceEvent& event) {
    if (ring_.size() < events_max_) {
        ring_.push_back(event);
    } else {
        ring_[count_ % events_max_] = event;
    }
    ++count_;
    digest_ = mixed(digest_, static_cast<std::uint64_t>(event.time.time_since_epoch().count()));
    digest_ = mixed(digest_, hash_bytes(event.lane));
    digest_ = mixed(digest_, hash_bytes(event.name));
    digest_ = mixed(digest_, static_cast<std::uint64_t>(event.first));
    digest_ = mixed(digest_, static_cast<std::uint64_t>(event.second));
    digest_ = mixed(digest_, static_cast<std::uint64_t>(event.took.count()));
}

std::vector<TraceEvent> Trace::events() const {
    const std::size_t oldest = ring_.size() < events_max_ ? 0 : count_ % events_max_;
    std::vector<TraceEvent> ordered(ring_.begin() + static_cast<std::ptrdiff_t>(oldest),
                                    ring_.end());
    ordered.insert(ordered.end(), ring_.begin(),
                   ring_.begin() + static_cast<std::ptrdiff_t>(oldest));
    return ordered;
}

std::string Trace::text() const {
    std::string out;
    for (const TraceEvent& event : events()) {
        const auto time_us = event.time.time_since_epoch().count() / 1000;
        fmt::format_to(std::back_inserter(out), "{}.{:06} {} {} {} {}", time_us / 1'000'000,
                       time_us % 1'000'000, event.lane, event.name, event.first, event.second);
        if (event.took.count() != 0)
            fmt::format_to(std::back_inserter(out), " +{}us", event.took.count() / 1000);
        out += '\n';
    }
    return out;
}

}  // namespace troupe::runtime
