// The loop of BPE against the rule that it stands for.
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "model/merge_queue.hpp"

using namespace troupe;

namespace {

using Queue = model::MergeQueue<int, std::uint32_t>;
using Merges = std::map<std::pair<int, int>, Queue::Merged>;

Queue::Merged find(const Merges& merges, int left, int right) {
    const auto found = merges.find({left, right});
    return found == merges.end() ? Queue::Merged{} : found->second;
}

// The rule itself: of all pairs the best, of equals the leftmost, until there is none.
std::vector<int> merged_slowly(std::vector<int> symbols, const Merges& merges) {
    for (;;) {
        std::size_t best = symbols.size();
        Queue::Merged found;
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
            const auto pair = find(merges, symbols[i], symbols[i + 1]);
            if (!pair.exists || (best < symbols.size() && pair.priority >= found.priority))
                continue;
            best = i;
            found = pair;
        }
        if (best == symbols.size()) return symbols;
        symbols[best] = found.symbol;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
}

}  // namespace

TEST_CASE("A merge queue merges the best pair first, the leftmost of equals, at every length",
          "[model][tokenizer]") {
    std::mt19937 random(7);
    const auto below = [&](int count) { return static_cast<int>(random() % unsigned(count)); };
    Queue queue;
    for (int round = 0; round < 200; ++round) {
        Merges merges;
        for (int made = 3; made < 40; ++made)  // few priorities: many equals
            merges[{below(made), below(made)}] = {true, static_cast<std::uint32_t>(below(8)), made};
        for (const int length : {0, 1, 2, 3, 8, 23, 24, 25, 26, 60}) {
            std::vector<int> symbols;
            for (int i = 0; i < length; ++i)
                symbols.push_back(below(3));
            queue.clear();
            for (const int symbol : symbols)
                queue.push(symbol);
            queue.run([&](int left, int right) { return find(merges, left, right); });
            std::vector<int> left_over;
            queue.for_each([&](int symbol) { left_over.push_back(symbol); });
            REQUIRE(left_over == merged_slowly(symbols, merges));
        }
    }
}
