// The prefix cache with a window: what a lease gives back, what stays known, and that memory comes
// free when it is needed, whatever the trie looks like.
#include "runtime/base/random.hpp"
#include "tests/actors/prefix_cache_script.hpp"

namespace troupe::actors {
namespace {

constexpr model::AttentionWindow kWindow{.tokens = 32, .sinks = 4};

struct WindowScript : CacheScript {
    explicit WindowScript(std::uint32_t pages) : CacheScript(pages, hash_page, kWindow) {}

    // Writes `tokens` from what the lease holds on, as the scheduler does: grow, publish, trim.
    bool write(LeaseId lease, const Tokens& tokens) {
        for (std::size_t end = cache.pages(lease).size() * 16; end < tokens.size(); end += 16) {
            if (grow(lease, 1) == 0) return false;
            publish(lease, Tokens(tokens.begin(), tokens.begin() + static_cast<long>(end) + 16));
            trim(lease, static_cast<std::uint32_t>(end) + 16);
        }
        return true;
    }
};

}  // namespace

TEST_CASE("a lease gives back what its window has left behind, sinks excepted",
          "[actors][cache][window]") {
    WindowScript s(10);
    const LeaseId lease = s.compute(text(96));
    s.trim(lease, 60);  // sees 29 and up
    CHECK(s.cache.stats().pages_leased == 6);
    s.trim(lease, 95);  // sees 64 and up
    const auto pages = s.cache.pages(lease);
    CHECK(s.cache.stats().pages_leased == 3);
    CHECK(pages[0] != kNoPage);
    CHECK((pages[1] == kNoPage && pages[2] == kNoPage && pages[3] == kNoPage));
    CHECK((pages[4] != kNoPage && pages[5] != kNoPage));
    s.release(lease);
    CHECK(s.cache.stats().pages_leased == 0);
}

TEST_CASE("pages behind the window are hits as long as nobody needs their room",
          "[actors][cache][window]") {
    WindowScript s(12);
    const LeaseId lease = s.compute(text(96));
    s.trim(lease, 95);
    const auto again = s.admit(joined(text(96), text(8, 500)));
    CHECK(again.cached_tokens == 96);
    // What the second one reads is page 0 and what 96 sees: 65 and up.
    CHECK(s.cache.pages(again.lease)[3] == kNoPage);
    CHECK(s.cache.pages(again.lease)[4] == s.cache.pages(lease)[4]);
    CHECK(s.cache.stats().pages_leased == 4);
}

TEST_CASE("a sequence far longer than the pool needs a window's pages only",
          "[actors][cache][window]") {
    WindowScript s(6);
    const auto admitted = s.admit(text(16), {.growth_tokens = 0});
    REQUIRE(admitted.refusal == Refusal::none);
    s.publish(admitted.lease, text(16));
    REQUIRE(s.write(admitted.lease, text(16 * 100)));
    CHECK(s.cache.stats().pages_leased == 3);
    s.release(admitted.lease);
    CHECK(s.cache.stats().pages_leased == 0);
}

TEST_CASE("room behind a window is found below shared pages, too", "[actors][cache][window]") {
    WindowScript s(14);
    const Tokens common = text(64);
    const LeaseId first = s.compute(common);
    const auto second = s.admit(joined(common, text(16, 900)));
    REQUIRE(second.cached_tokens == 64);
    s.publish(second.lease, joined(common, text(16, 900)));
    REQUIRE(s.write(first, joined(common, text(16 * 30, 1'000))));
    REQUIRE(s.write(second.lease, joined(common, text(16 * 30, 2'000))));
    CHECK(s.cache.stats().pages_leased == 5);  // page 0 is shared
}

TEST_CASE("a prompt longer than the pool is admitted piece by piece", "[actors][cache][window]") {
    WindowScript s(6);
    const Tokens prompt = text(16 * 20);
    const auto admitted = s.admit(prompt, {.pages_max = 5});
    REQUIRE(admitted.refusal == Refusal::none);
    CHECK(s.cache.pages(admitted.lease).size() == 5);
    s.publish(admitted.lease, text(80));
    s.trim(admitted.lease, 80);
    REQUIRE(s.write(admitted.lease, prompt));
}

TEST_CASE("random lives of leases with a window lose no page", "[actors][cache][window]") {
    Random random(11);
    struct Life {
        LeaseId lease;
        Tokens tokens;
    };
    WindowScript s(24);
    std::vector<Life> lives;
    for (int i = 0; i < 1'500; ++i) {
        const auto dice = random.below(10);
        if (dice < 3) {
            Tokens tokens = joined(text(16 * random.below(9)),
                                   text(1 + random.below(40),
                                        static_cast<model::TokenId>(1'000 * random.below(4) + 1)));
            const auto admitted = s.admit(tokens, {.pages_max = 8});
            if (admitted.refusal != Refusal::none) continue;
            const std::size_t held = s.cache.pages(admitted.lease).size() * 16;
            tokens.resize(std::min(tokens.size(), held));
            s.publish(admitted.lease, tokens);
            s.trim(admitted.lease, static_cast<std::uint32_t>(tokens.size()) - 1);
            lives.push_back({admitted.lease, tokens});
        } else if (!lives.empty()) {
            Life& life = lives[random.below(lives.size())];
            if (dice < 8) {
                const Tokens more = joined(
                    life.tokens, text(16, static_cast<model::TokenId>(100 * random.below(3))));
                if (s.cache.pages(life.lease).size() * 16 < more.size() &&
                    s.grow(life.lease, 1) == 0)
                    continue;
                life.tokens = more;
                s.publish(life.lease, more);
                s.trim(life.lease, static_cast<std::uint32_t>(more.size()) - 1);
            } else {
                s.release(life.lease);
                std::swap(life, lives.back());
                lives.pop_back();
            }
        }
    }
    for (const Life& life : lives)
        s.release(life.lease);
    CHECK(s.cache.stats().pages_leased == 0);
    CHECK(s.admit(text(16 * 24 - 1, 9'000)).refusal == Refusal::none);
}

}  // namespace troupe::actors
