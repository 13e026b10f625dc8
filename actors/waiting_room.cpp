#include "actors/waiting_room.hpp"

#include <algorithm>

#include "actors/limits.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {

void WaitingRoom::enter(Request& request) {
    const Principal& who = request.submit.principal;
    const auto known = by_id_.find(who.id);
    if (known != by_id_.end()) {
        request.principal = known->second;
    } else {
        if (by_id_.size() >= limits::kPrincipalsRemembered) forget_the_absent();
        if (free_.empty()) {
            free_.push_back(static_cast<std::uint32_t>(principals_.size()));
            principals_.emplace_back();
        }
        request.principal = free_.back();
        free_.pop_back();
        by_id_.emplace(who.id, request.principal);
        principals_[request.principal] = PrincipalState{.id = who.id};
    }
    PrincipalState& p = principals_[request.principal];
    if (p.live == 0) p.served = std::max(p.served, least_served());
    p.weight = who.weight;
    TROUPE_ASSERT(p.weight > 0, "weights are checked where keys are read");
    ++p.live;
}

void WaitingRoom::leave(const Request& request) {
    --principals_[request.principal].live;
}

void WaitingRoom::enqueue(Request& request) {
    PrincipalState& p = principals_[request.principal];
    request.ahead = p.back;
    request.behind = nullptr;
    (p.back == nullptr ? p.front : p.back->behind) = &request;
    p.back = &request;
    ++p.waiting;
    ++count_;
}

void WaitingRoom::enqueue_preempted(Request& request) {
    const auto place = std::ranges::lower_bound(preempted_, request.arrival, {}, &Request::arrival);
    preempted_.insert(place, &request);
    request.was_preempted = true;
    ++principals_[request.principal].waiting;
    ++count_;
}

void WaitingRoom::dequeue(Request& request) {
    PrincipalState& p = principals_[request.principal];
    if (request.was_preempted) {
        std::erase(preempted_, &request);
        request.was_preempted = false;
    } else {
        (request.ahead == nullptr ? p.front : request.ahead->behind) = request.behind;
        (request.behind == nullptr ? p.back : request.behind->ahead) = request.ahead;
        request.ahead = nullptr;
        request.behind = nullptr;
    }
    --p.waiting;
    --count_;
}

void WaitingRoom::in_order(std::vector<Request*>& out) const {
    struct Placed {
        std::uint32_t place;  // in its principal's queue
        double served;
        Request* request;
    };
    std::vector<Placed> placed;
    placed.reserve(count_);
    for (const PrincipalState& p : principals_) {
        std::uint32_t place = 0;
        for (Request* r = p.front; r != nullptr; r = r->behind) {
            placed.push_back({place++, p.served, r});
        }
    }
    std::ranges::sort(placed, [](const Placed& a, const Placed& b) {
        if (a.place != b.place) return a.place < b.place;
        if (a.served != b.served) return a.served < b.served;
        return a.request->arrival < b.request->arrival;
    });
    out.assign(preempted_.begin(), preempted_.end());
    for (const Placed& p : placed)
        out.push_back(p.request);
}

void WaitingRoom::charge(const Request& request, std::uint32_t tokens) {
    PrincipalState& p = principals_[request.principal];
    p.served += tokens / p.weight;
}

double WaitingRoom::least_served() const {
    double least = 0;
    bool any = false;
    for (const PrincipalState& p : principals_) {
        if (p.live == 0) continue;
        least = any ? std::min(least, p.served) : p.served;
        any = true;
    }
    return least;
}

WaitingRoom::PrincipalState* WaitingRoom::least_served_at_cursor() {
    PrincipalState* best = nullptr;
    for (PrincipalState& p : principals_) {
        if (p.cursor == nullptr) continue;
        const auto better = [](const PrincipalState& a, const PrincipalState& b) {
            const double served_a = a.served + a.promised;
            const double served_b = b.served + b.promised;
            if (served_a != served_b) return served_a < served_b;
            return a.cursor->arrival < b.cursor->arrival;
        };
        if (best == nullptr || better(p, *best)) best = &p;
    }
    return best;
}

void WaitingRoom::forget_the_absent() {
    for (std::uint32_t i = 0; i < principals_.size(); ++i) {
        const auto known = by_id_.find(principals_[i].id);
        if (principals_[i].live > 0 || known == by_id_.end() || known->second != i) continue;
        by_id_.erase(known);
        free_.push_back(i);
    }
}

}  // namespace troupe::actors
