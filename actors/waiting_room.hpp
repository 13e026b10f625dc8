// WaitingRoom: who waits, in whose name, and who is next. A pure core of the scheduler. One queue
// for each principal; the principal that has been served least, by weight, goes first. Preempted
// requests stand before everybody, oldest first.
//
// Served tokens are counted as in "Fairness in Serving Large Language Models" (Sheng et al. 2023):
// a principal that comes, or comes back, starts no lower than the least served one that is here.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "actors/request.hpp"

namespace troupe::actors {

class WaitingRoom {
 public:
    // Counts the request's principal as present; sets request.principal. Before anything else.
    void enter(Request& request);
    // The request is gone for good.
    void leave(const Request& request);

    void enqueue(Request& request);            // behind its principal's others
    void enqueue_preempted(Request& request);  // before everybody younger
    void dequeue(Request& request);

    // The next `count_max` in fair order, passing over those for whom `blocked(request)` holds.
    template <class Blocked>
    void next(std::size_t count_max, const Blocked& blocked, std::vector<Request*>& out);

    // Everybody in about the order in which they will run: place by place in the queues.
    void in_order(std::vector<Request*>& out) const;

    void charge(const Request& request, std::uint32_t tokens);
    [[nodiscard]] double served(const Request& request) const {
        return principals_[request.principal].served;
    }
    [[nodiscard]] std::uint32_t count() const { return count_; }
    [[nodiscard]] std::size_t principals_known() const { return by_id_.size(); }
    [[nodiscard]] std::uint32_t count_of(const Request& request) const {
        return principals_[request.principal].waiting;
    }

 private:
    struct PrincipalState {
        std::uint64_t id = 0;
        double weight = 1.0;
        double served = 0;       // tokens / weight
        std::uint32_t live = 0;  // requests, waiting or running
        std::uint32_t waiting = 0;
        Request* front = nullptr;
        Request* back = nullptr;
        Request* cursor = nullptr;  // of next()
        double promised = 0;        // of next(): what it has been given in this round
    };

    [[nodiscard]] double least_served() const;
    [[nodiscard]] PrincipalState* least_served_at_cursor();
    void forget_the_absent();

    std::vector<PrincipalState> principals_;
    std::vector<std::uint32_t> free_;
    std::unordered_map<std::uint64_t, std::uint32_t> by_id_;
    std::vector<Request*> preempted_;  // oldest first
    std::uint32_t count_ = 0;
};

template <class Blocked>
void WaitingRoom::next(std::size_t count_max, const Blocked& blocked, std::vector<Request*>& out) {
    out.clear();
    for (Request* request : preempted_) {
        if (out.size() < count_max && !blocked(*request)) out.push_back(request);
    }
    for (PrincipalState& p : principals_) {
        p.cursor = p.front;
        p.promised = 0;
    }
    while (out.size() < count_max) {
        PrincipalState* p = least_served_at_cursor();
        if (p == nullptr) return;
        Request* request = p->cursor;
        p->cursor = request->behind;
        if (blocked(*request)) continue;
        p->promised += request->length() / p->weight;
        out.push_back(request);
    }
}

}  // namespace troupe::actors
