// A scripted conversation with the prefix cache: every step is followed by check_integrity().
#pragma once

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "actors/prefix_cache.hpp"

namespace troupe::actors {

using Refusal = CacheStepDone::Refusal;
using Tokens = std::vector<model::TokenId>;

inline Tokens text(std::size_t length, model::TokenId first = 0) {
    Tokens tokens(length);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

inline Tokens joined(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

class CacheScript {
 public:
    explicit CacheScript(std::uint32_t pages, PageHash hash = hash_page,
                         model::AttentionWindow window = {})
        : cache(pages, window, hash) {}

    CacheStepDone::Admitted admit(const Tokens& tokens, CacheStep::Admit ask = {}) {
        CacheStep step;
        ask.tokens = tokens;
        step.admit.push_back(ask);
        return run(step).admitted.at(0);
    }
    void publish(LeaseId lease, const Tokens& written) {
        CacheStep step;
        step.publish.push_back({lease, written});
        run(step);
    }
    void release(LeaseId lease) {
        CacheStep step;
        step.release.push_back(lease);
        run(step);
    }
    void trim(LeaseId lease, std::uint32_t position) {
        CacheStep step;
        step.trim.push_back({lease, position});
        run(step);
    }
    std::uint32_t grow(LeaseId lease, std::uint32_t pages) {
        CacheStep step;
        step.grow.push_back({lease, pages});
        return run(step).grown.at(0);
    }
    // Admits, computes and publishes; gives the lease.
    LeaseId compute(const Tokens& tokens, CacheStep::Admit ask = {}) {
        const auto admitted = admit(tokens, ask);
        REQUIRE(admitted.refusal == Refusal::none);
        publish(admitted.lease, tokens);
        return admitted.lease;
    }
    void compute_and_release(const Tokens& tokens, CacheStep::Admit ask = {}) {
        release(compute(tokens, ask));
    }
    const CacheStepDone& run(const CacheStep& step) {
        cache.step(step, done);
        REQUIRE(cache.check_integrity() == "");
        return done;
    }

    PrefixCache cache;
    CacheStepDone done;
};

}  // namespace troupe::actors
