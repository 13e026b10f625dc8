// Outbox: what one scheduler step has to say to the hubs, one Delivery for each. Owned by the
// Scheduler; the shell sends the deliveries after the plan, so that the fan-out overlaps the
// compute.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "actors/messages.hpp"
#include "actors/spare_deliveries.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {

class Outbox {
 public:
    explicit Outbox(std::uint32_t hub_count) : deliveries_(hub_count) {}

    template <class Event>
    void add(const SessionRef& to, Event event) {
        of(to).events.emplace_back(std::move(event));
    }

    // `token` with its alternatives, which lie in the step's `top`: as part of a TokenRun or of
    // PromptScores, the one before it where it can.
    template <class Run = TokenRun>
    void add_token(const SessionRef& to, RequestId request, std::uint32_t index,
                   const model::SampledToken& token, std::span<const model::TokenLogprob> top) {
        Delivery& delivery = of(to);
        const auto begin = static_cast<std::uint32_t>(delivery.tokens.size());
        delivery.tokens.push_back(token);
        delivery.tokens.back().top_begin = static_cast<std::uint32_t>(delivery.top.size());
        const auto alternatives =
            top.subspan(token.top_count > 0 ? token.top_begin : 0, token.top_count);
        delivery.top.insert(delivery.top.end(), alternatives.begin(), alternatives.end());
        if (!delivery.events.empty()) {
            auto* run = std::get_if<Run>(&delivery.events.back());
            if (run != nullptr && run->request == request) {
                ++run->count;
                return;
            }
        }
        delivery.events.emplace_back(Run{to.session, request, index, begin, 1});
    }

    // One for each hub; those without events are not to be sent.
    [[nodiscard]] const std::vector<Delivery>& deliveries() const { return deliveries_; }

    // Hands a delivery over, to be given back when it has been read.
    [[nodiscard]] Delivery take(std::size_t hub) {
        Delivery taken = std::exchange(deliveries_[hub], spares_->take());
        taken.home = spares_;
        return taken;
    }

    void clear() {
        for (Delivery& delivery : deliveries_)
            delivery.clear();
    }

 private:
    [[nodiscard]] Delivery& of(const SessionRef& to) {
        TROUPE_ASSERT(to.hub < deliveries_.size(), "a session names a hub that exists");
        return deliveries_[to.hub];
    }

    std::vector<Delivery> deliveries_;
    std::shared_ptr<SpareDeliveries> spares_ = std::make_shared<SpareDeliveries>();
};

}  // namespace troupe::actors
