// The prefix cache as scripted conversations.
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "runtime/base/random.hpp"
#include "tests/actors/prefix_cache_script.hpp"

namespace troupe::actors {
namespace {

std::uint64_t same_hash(PageTokens) {
    return 7;
}

using Script = CacheScript;

TEST_CASE("a finished request's pages serve the next one with that prefix", "[actors][cache]") {
    Script s(8);
    s.compute_and_release(text(40));
    const auto again = s.admit(joined(text(40), text(10, 500)));
    REQUIRE(again.refusal == Refusal::none);
    REQUIRE(again.cached_tokens == 32);
    REQUIRE(s.cache.stats().hit_tokens == 32);
    REQUIRE(s.cache.stats().queried_tokens == 90);
}

TEST_CASE("the last prompt token is always computed", "[actors][cache]") {
    Script s(8);
    s.compute_and_release(text(32));
    REQUIRE(s.admit(text(32)).cached_tokens == 16);
    REQUIRE(s.admit(text(33)).cached_tokens == 32);
    REQUIRE(s.admit(text(1)).cached_tokens == 0);
}

TEST_CASE("a running request's written pages are shared with a second one", "[actors][cache]") {
    Script s(8);
    const LeaseId first = s.compute(text(48));
    const auto second = s.admit(text(48));
    REQUIRE(second.cached_tokens == 32);
    REQUIRE(s.cache.pages(first)[0] == s.cache.pages(second.lease)[0]);
    REQUIRE(s.cache.pages(first)[1] == s.cache.pages(second.lease)[1]);
    REQUIRE(s.cache.pages(first)[2] != s.cache.pages(second.lease)[2]);
    s.release(first);
    s.release(second.lease);
    REQUIRE(s.cache.stats().pages_leased == 0);
}

TEST_CASE("a page is no hit before its keys and values are written", "[actors][cache]") {
    Script s(8);
    CacheStep both;  // cases.md C7: two identical prompts in one step
    const Tokens prompt = text(40);
    both.admit.push_back({.tokens = prompt});
    both.admit.push_back({.tokens = prompt});
    const auto admitted = s.run(both).admitted;
    REQUIRE(admitted[0].refusal == Refusal::none);
    REQUIRE(admitted[1].refusal == Refusal::prefix_pending);
    REQUIRE(s.cache.pending(admitted[1].waits_for));

    s.publish(admitted[0].lease, text(16));
    REQUIRE(s.cache.pending(admitted[1].waits_for));  // it waits for the whole of what they share
    s.publish(admitted[0].lease, text(40));
    REQUIRE_FALSE(s.cache.pending(admitted[1].waits_for));
    REQUIRE(s.admit(prompt).cached_tokens == 32);
}

TEST_CASE("who waits for a prefix goes on when its holder dies", "[actors][cache]") {
    Script s(8);
    const auto holder = s.admit(text(40));
    const auto waiting = s.admit(text(40));
    REQUIRE(waiting.refusal == Refusal::prefix_pending);
    SECTION("before anything was written") {
        s.release(holder.lease);
        REQUIRE_FALSE(s.cache.pending(waiting.waits_for));
        REQUIRE(s.admit(text(40)).cached_tokens == 0);
    }
    SECTION("after one page was written") {
        s.publish(holder.lease, text(20));
        s.release(holder.lease);
        REQUIRE_FALSE(s.cache.pending(waiting.waits_for));
        REQUIRE(s.admit(text(40)).cached_tokens == 16);
    }
}

TEST_CASE("equal hashes do not make a hit: tokens are compared", "[actors][cache]") {
    Script s(16, same_hash);  // cases.md C18
    s.compute_and_release(text(33, 0));
    s.compute_and_release(text(33, 1000));
    REQUIRE(s.admit(text(33, 2000)).cached_tokens == 0);
    REQUIRE(s.admit(text(33, 1000)).cached_tokens == 32);
    REQUIRE(s.admit(text(33, 0)).cached_tokens == 32);
    REQUIRE(s.admit(joined(text(16, 0), text(17, 1016))).cached_tokens == 16);
}

TEST_CASE("equal pages behind different prefixes are different pages", "[actors][cache]") {
    Script s(16);
    s.compute_and_release(joined(text(16, 0), text(17, 700)));
    REQUIRE(s.admit(joined(text(16, 100), text(17, 700))).cached_tokens == 0);
    REQUIRE(s.admit(text(17, 700)).cached_tokens == 0);
}

TEST_CASE("salts keep principals apart", "[actors][cache]") {
    Script s(16);
    s.compute_and_release(text(40), {.salt = 1});
    REQUIRE(s.admit(text(40), {.salt = 2}).cached_tokens == 0);
    REQUIRE(s.admit(text(40), {.salt = 1}).cached_tokens == 32);
}

TEST_CASE("text declared shared is found under every salt, the rest is not", "[actors][cache]") {
    Script s(16);
    s.compute_and_release(text(60), {.salt = 1, .shared_tokens = 40});
    REQUIRE(s.admit(text(60), {.salt = 2, .shared_tokens = 40}).cached_tokens == 32);
    s.compute_and_release(text(60), {.salt = 1, .shared_tokens = 40});
    REQUIRE(s.admit(text(60), {.salt = 1, .shared_tokens = 40}).cached_tokens == 48);
    // The same words, not declared shared, tell a stranger nothing.
    REQUIRE(s.admit(text(60), {.salt = 3}).cached_tokens == 0);
}

TEST_CASE("an answer's pages serve the conversation's next turn", "[actors][cache]") {
    Script s(16);
    const LeaseId lease = s.compute(text(20));
    REQUIRE(s.grow(lease, 2) == 2);
    s.publish(lease, text(50));
    s.release(lease);
    REQUIRE(s.admit(joined(text(50), text(9, 900))).cached_tokens == 48);
}

TEST_CASE("the least recently used leaf is evicted first", "[actors][cache]") {
    Script s(6);
    s.compute_and_release(text(32, 0));
    s.compute_and_release(text(32, 100));
    s.compute_and_release(text(32, 200));
    s.compute_and_release(text(33, 0));  // touches the first, and takes a page from the second
    REQUIRE(s.admit(text(33, 200)).cached_tokens == 32);
    REQUIRE(s.admit(text(33, 100)).cached_tokens < 32);
}

TEST_CASE("held pages and those above them are never evicted", "[actors][cache]") {
    Script s(4);
    const LeaseId held = s.compute(text(48));
    REQUIRE(s.admit(text(40, 500)).refusal == Refusal::no_pages);
    REQUIRE(s.admit(text(10, 500)).refusal == Refusal::none);
    REQUIRE(s.cache.pages(held).size() == 3);
}

TEST_CASE("a request without room is refused, and those behind it wait their turn",
          "[actors][cache]") {
    Script s(4);
    const Tokens big = text(80), small = text(5);
    CacheStep step;
    step.admit.push_back({.tokens = big});
    step.admit.push_back({.tokens = small});
    const auto admitted = s.run(step).admitted;
    REQUIRE(admitted[0].refusal == Refusal::no_pages);
    REQUIRE(admitted[1].refusal == Refusal::behind);
    REQUIRE(s.done.pages_free == 4);
}

TEST_CASE("pages kept for growth are not given to newcomers", "[actors][cache]") {
    Script s(4);
    REQUIRE(s.admit(text(40), {.keep_free = 2}).refusal == Refusal::no_pages);
    REQUIRE(s.admit(text(40), {.keep_free = 1}).refusal == Refusal::none);
}

TEST_CASE("releases come before growth and growth before admissions", "[actors][cache]") {
    Script s(4);
    const LeaseId old = s.compute(text(32));
    const LeaseId runs = s.compute(text(32, 100));
    const Tokens fresh = text(10, 200);
    CacheStep step;
    step.release.push_back(old);
    step.grow.push_back({runs, 1});
    step.admit.push_back({.tokens = fresh});
    const auto& done = s.run(step);
    REQUIRE(done.grown == std::vector<std::uint32_t>{1});
    REQUIRE(done.admitted[0].refusal == Refusal::none);
    REQUIRE(done.pages_free == 0);
}

TEST_CASE("a fork shares full pages and copies the tail", "[actors][cache]") {
    Script s(16);
    const LeaseId source = s.compute(text(40));
    CacheStep step;
    step.fork.push_back({source, 40, 16});
    const auto& done = s.run(step);
    const LeaseId fork = done.forked.at(0);
    REQUIRE(fork != kNoLease);
    REQUIRE(s.cache.pages(fork).size() == 4);
    REQUIRE(s.cache.pages(fork)[1] == s.cache.pages(source)[1]);
    REQUIRE(done.copies.size() == 1);
    REQUIRE(done.copies[0].from == s.cache.pages(source)[2]);
    REQUIRE(done.copies[0].to == s.cache.pages(fork)[2]);
    REQUIRE(done.copies[0].tokens == 8);

    s.publish(source, joined(text(40), text(10, 300)));
    s.publish(fork, joined(text(40), text(10, 400)));
    s.release(source);
    s.release(fork);
    REQUIRE(s.admit(joined(text(40), text(10, 400))).cached_tokens == 48);
    REQUIRE(s.admit(joined(text(40), text(10, 300))).cached_tokens == 48);
}

TEST_CASE("a fork without room leaves nothing behind", "[actors][cache]") {
    Script s(3);
    const LeaseId source = s.compute(text(48));
    CacheStep step;
    step.fork.push_back({source, 40, 0});
    REQUIRE(s.run(step).forked.at(0) == kNoLease);
    s.release(source);
    REQUIRE(s.cache.stats().pages_leased == 0);
}

TEST_CASE("text computed twice is kept once", "[actors][cache]") {
    Script s(8);
    const LeaseId first = s.compute(text(32));
    const LeaseId second = s.compute(text(32));  // its second page is the last token's: private
    s.grow(second, 1);
    s.publish(second, text(48));
    s.release(second);
    REQUIRE(s.cache.stats().pages_cached == 1);  // page 2 of `second`, below page 1 of `first`
    s.release(first);
    REQUIRE(s.cache.stats().pages_cached == 3);
    REQUIRE(s.admit(text(49)).cached_tokens == 48);
}

TEST_CASE("publishing goes on after the page it hung on was evicted", "[actors][cache]") {
    Script s(5);
    const LeaseId first = s.compute(text(32));
    const LeaseId second = s.compute(text(32));
    s.release(first);                 // page 1 of `first` is cached; `second` publishes below it
    REQUIRE(s.grow(second, 3) == 3);  // takes that page
    s.publish(second, text(64));
    s.release(second);
    REQUIRE(s.admit(text(65)).cached_tokens == 64);
}

TEST_CASE("aborted prompts give every page back", "[actors][cache]") {
    Script s(64);  // cases.md C9
    Random random(9);
    for (int i = 0; i < 2'000; ++i) {
        const Tokens prompt = text(1 + random.below(200), static_cast<int>(random.below(3)) * 1000);
        const auto admitted = s.admit(prompt);
        if (admitted.refusal != Refusal::none) continue;
        const std::size_t written = random.below(prompt.size() + 1);
        s.publish(admitted.lease,
                  Tokens(prompt.begin(), prompt.begin() + static_cast<long>(written)));
        s.release(admitted.lease);
        REQUIRE(s.cache.stats().pages_leased == 0);
    }
}

// What the cache says is cached was published with exactly these tokens under this salt.
TEST_CASE("any conversation keeps the books and never invents a hit", "[actors][cache]") {
    const PageHash hash = GENERATE(hash_page, same_hash);
    Script s(24, hash);
    struct Live {
        LeaseId lease;
        Tokens tokens;
        std::uint64_t salt;
    };
    Random random(hash == same_hash ? 1 : 2);
    std::vector<Live> live;
    std::set<std::pair<std::uint64_t, Tokens>> published;
    const auto note = [&](const Live& l, std::size_t written) {
        for (std::size_t n = 16; n <= written; n += 16) {
            published.emplace(l.salt,
                              Tokens(l.tokens.begin(), l.tokens.begin() + static_cast<long>(n)));
        }
    };
    for (int i = 0; i < 4'000; ++i) {
        const auto action = random.below(4);
        if (action == 0 || live.empty()) {
            Live l{0, {}, random.below(2)};
            const std::size_t length = 1 + random.below(100);
            for (std::size_t t = 0; t < length; ++t) {
                l.tokens.push_back(
                    t / 16 == 0 ? 0 : static_cast<int>(t % 16 == 0 && random.chance(0.3)));
            }
            const auto admitted = s.admit(l.tokens, {.salt = l.salt});
            if (admitted.refusal != Refusal::none) continue;
            l.lease = admitted.lease;
            if (admitted.cached_tokens > 0) {
                const Tokens hit(l.tokens.begin(), l.tokens.begin() + admitted.cached_tokens);
                REQUIRE(published.contains({l.salt, hit}));
            }
            live.push_back(l);
            continue;
        }
        const std::size_t chosen = random.below(live.size());
        Live& l = live[chosen];
        if (action == 1) {
            const std::size_t written = 1 + random.below(l.tokens.size());
            note(l, written);
            s.publish(l.lease,
                      Tokens(l.tokens.begin(), l.tokens.begin() + static_cast<long>(written)));
        } else if (action == 2) {
            if (s.grow(l.lease, 1) == 0) continue;
            while (l.tokens.size() < s.cache.pages(l.lease).size() * 16) {
                l.tokens.push_back(static_cast<int>(random.below(2)));
            }
        } else {
            s.release(l.lease);
            live.erase(live.begin() + static_cast<long>(chosen));
        }
    }
    for (const Live& l : live)
        s.release(l.lease);
    REQUIRE(s.cache.stats().pages_leased == 0);
}

}  // namespace
}  // namespace troupe::actors
