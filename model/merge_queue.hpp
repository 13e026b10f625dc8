// The loop that both kinds of BPE share: neighbours merge, best pair first, the leftmost among
// equals, until no pair is left. O(n log n) in the number of symbols; of few, which is what words
// are, looking through all is quicker than a heap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/token.hpp"

namespace troupe::model {

// Symbol must be equality-comparable. Lower priority merges first. One object serves many words,
// so that its memory is allocated once.
template <class Symbol, class Priority>
class MergeQueue {
 public:
    struct Merged {
        bool exists = false;
        Priority priority{};
        Symbol symbol{};
    };

    void clear() {
        nodes_.clear();
        queue_.clear();
    }

    void push(const Symbol& symbol) {
        const auto at = static_cast<std::int32_t>(nodes_.size());
        nodes_.push_back({symbol, at - 1, at + 1, true});
    }

    // `merge(left, right)` gives a Merged. Then for_each() visits what is left.
    template <class MergeFunction>
    void run(const MergeFunction& merge) {
        if (nodes_.size() <= kFew) return run_few(merge);
        nodes_.back().next = -1;
        for (std::size_t i = 0; i + 1 < nodes_.size(); ++i) {
            consider(static_cast<std::int32_t>(i), merge);
        }
        while (!queue_.empty()) {
            std::pop_heap(queue_.begin(), queue_.end());
            const Candidate best = queue_.back();
            queue_.pop_back();
            Node& left = nodes_[index(best.left)];
            if (!left.alive || left.next != best.right || !(left.symbol == best.left_symbol) ||
                !(nodes_[index(best.right)].symbol == best.right_symbol)) {
                continue;  // one side has merged with somebody else since
            }
            Node& right = nodes_[index(best.right)];
            left.symbol = best.merged;
            left.next = right.next;
            right.alive = false;
            if (left.next >= 0) nodes_[index(left.next)].previous = best.left;
            if (left.previous >= 0) consider(left.previous, merge);
            consider(best.left, merge);
        }
    }

    template <class Visit>
    void for_each(const Visit& visit) const {
        for (const Node& node : nodes_) {
            if (node.alive) visit(node.symbol);
        }
    }

 private:
    static constexpr std::size_t kFew = 24;

    struct Node {
        Symbol symbol;
        std::int32_t previous;
        std::int32_t next;
        bool alive;
    };
    struct Candidate {
        Priority priority;
        std::int32_t left;
        std::int32_t right;
        Symbol left_symbol;
        Symbol right_symbol;
        Symbol merged;

        // A heap has its greatest first.
        friend bool operator<(const Candidate& a, const Candidate& b) {
            if (a.priority != b.priority) return a.priority > b.priority;
            return a.left > b.left;
        }
    };

    static std::size_t index(std::int32_t at) { return static_cast<std::size_t>(at); }

    template <class MergeFunction>
    void run_few(const MergeFunction& merge) {
        pairs_.clear();
        for (std::size_t i = 0; i + 1 < nodes_.size(); ++i)
            pairs_.push_back(merge(nodes_[i].symbol, nodes_[i + 1].symbol));
        for (;;) {
            std::size_t best = pairs_.size();
            for (std::size_t i = 0; i < pairs_.size(); ++i) {
                if (!pairs_[i].exists) continue;
                if (best == pairs_.size() || pairs_[i].priority < pairs_[best].priority) best = i;
            }
            if (best == pairs_.size()) return;
            nodes_[best].symbol = pairs_[best].symbol;
            nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
            pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(best));
            if (best > 0) pairs_[best - 1] = merge(nodes_[best - 1].symbol, nodes_[best].symbol);
            if (best < pairs_.size())
                pairs_[best] = merge(nodes_[best].symbol, nodes_[best + 1].symbol);
        }
    }

    template <class MergeFunction>
    void consider(std::int32_t at, const MergeFunction& merge) {
        const Node& left = nodes_[index(at)];
        if (left.next < 0) return;
        const Node& right = nodes_[index(left.next)];
        const Merged merged = merge(left.symbol, right.symbol);
        if (!merged.exists) return;
        queue_.push_back(
            {merged.priority, at, left.next, left.symbol, right.symbol, merged.symbol});
        std::push_heap(queue_.begin(), queue_.end());
    }

    std::vector<Node> nodes_;
    std::vector<Candidate> queue_;
    std::vector<Merged> pairs_;  // of each node with the next
};

}  // namespace troupe::model
