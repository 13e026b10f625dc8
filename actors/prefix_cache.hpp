// PrefixCache: owns every page of the KV cache and shares equal prefixes between requests, also
// while the first holder still runs. A pure core on the engine thread; the scheduler asks it once a
// step with a CacheStep and touches pages only through leases.
//
// A lease is one sequence's page table. Its first pages may be shared (a prefix that was cached),
// the rest are its own. At admission the full pages of its prompt enter the trie as announcements:
// another request with that prefix waits for them instead of computing them twice. A publish turns
// them, and later the answer's pages, into hits once their keys and values are written.
//
// With a window (model/attention_window.hpp) a lease gives back the pages that its sequence has
// left behind; their entries become kNoPage. They stay known like any page that nobody holds. But
// they lie in the trie above pages that are held, so when room is needed, such leases are detached:
// their pages leave the trie, deepest first, until what is above them can be evicted.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "actors/prefix_cache_pages.hpp"
#include "model/attention_window.hpp"
#include "model/step.hpp"

namespace troupe::actors {

using LeaseId = std::uint32_t;
inline constexpr LeaseId kNoLease = std::numeric_limits<LeaseId>::max();

[[nodiscard]] constexpr std::uint32_t pages_for(std::uint64_t tokens) {
    return static_cast<std::uint32_t>((tokens + model::kPageTokens - 1) / model::kPageTokens);
}

// Acts in the order of its fields. Spans are read during the call only.
struct CacheStep {
    // The keys and values of exactly `written`, the sequence's first tokens, are in the pages.
    struct Publish {
        LeaseId lease = kNoLease;
        std::span<const model::TokenId> written;
    };
    // Queries of this sequence stand at `position` and after from now on.
    struct Trim {
        LeaseId lease = kNoLease;
        std::uint32_t position = 0;
    };
    struct Grow {
        LeaseId lease = kNoLease;
        std::uint32_t pages = 0;
    };
    // A second sequence that agrees with `source` in its first `tokens` tokens, all of them
    // written.
    struct Fork {
        LeaseId source = kNoLease;
        std::uint32_t tokens = 0;
        std::uint32_t growth_tokens = 0;
    };
    struct Admit {
        std::span<const model::TokenId> tokens{};  // to be computed, as far as they are not cached
        std::uint32_t growth_tokens = 0;           // room behind them
        std::uint64_t salt = 0;
        std::uint32_t shared_tokens = 0;  // leading tokens that match whatever the salt
        bool computes_all = false;        // what is cached, too
        std::uint32_t keep_free = 0;      // pages to leave for those who run
        // Pages that it holds at first, at most; the rest comes by Grow.
        std::uint32_t pages_max = std::numeric_limits<std::uint32_t>::max();
    };

    std::vector<Publish> publish;
    std::vector<Trim> trim;
    std::vector<LeaseId> release;
    std::vector<Grow> grow;
    std::vector<Fork> fork;
    std::vector<Admit> admit;

    void clear();
};

struct CacheStepDone {
    enum class Refusal : std::uint8_t {
        none,
        no_pages,
        behind,          // not looked at: one before it was refused for want of pages
        prefix_pending,  // part of its prefix is being computed; see waits_for
    };
    struct Admitted {
        Refusal refusal = Refusal::none;
        LeaseId lease = kNoLease;
        std::uint32_t cached_tokens = 0;
        PageVersion waits_for;  // ask again when this page is no longer pending
    };

    std::vector<std::uint32_t> grown;  // pages granted: what was asked, or 0
    std::vector<LeaseId> forked;       // kNoLease where there was no room
    std::vector<model::PageCopy> copies;
    std::vector<Admitted> admitted;
    std::uint32_t pages_free = 0;  // cached ones included

    void clear();
};

struct PrefixCacheStats {
    std::uint32_t pages_total = 0;
    std::uint32_t pages_leased = 0;
    std::uint32_t pages_cached = 0;
    std::uint64_t queried_tokens = 0;  // prompt tokens of admitted requests
    std::uint64_t hit_tokens = 0;
};

class PrefixCache {
 public:
    explicit PrefixCache(std::uint32_t pages_total, model::AttentionWindow window = {},
                         PageHash hash = hash_page);

    // `done` is overwritten; its vectors are reused.
    void step(const CacheStep& ask, CacheStepDone& done);

    // The page table: entry i holds positions [16 i, 16 i + 16), or is kNoPage where the window
    // has left it behind. Valid until the next step().
    [[nodiscard]] std::span<const model::PageId> pages(LeaseId lease) const;

    // Still being computed by the request that announced it.
    [[nodiscard]] bool pending(PageVersion page) const;

    [[nodiscard]] PrefixCacheStats stats() const;
    [[nodiscard]] std::uint32_t leases() const { return leases_live_; }

    // free + cached + leased = total, references agree with leases, the trie and the LRU are sound:
    // the first broken rule in words, or empty. Walks everything.
    [[nodiscard]] std::string check_integrity() const;

 private:
    struct Lease {
        std::vector<model::PageId> pages;
        std::uint64_t salt = 0;
        std::uint32_t shared_tokens = 0;
        // The first `published` pages are in the trie, or equal to pages that are: `anchor` is the
        // trie's page for the last of them.
        std::uint32_t published = 0;
        PageVersion anchor;
        std::uint32_t unread_end = 0;  // entries up to here are sinks or kNoPage, if not 0
        bool detached = false;         // publishes nothing any more
        bool live = false;
    };
    struct Match {
        std::uint32_t pages = 0;          // written, found along the path
        model::PageId pending = kNoPage;  // the deepest announced page behind them
    };

    void publish(Lease& lease, std::span<const model::TokenId> written);
    void trim(Lease& lease, std::uint32_t position);
    void release(LeaseId id);
    [[nodiscard]] std::uint32_t grow(Lease& lease, std::uint32_t pages);
    [[nodiscard]] LeaseId fork(const CacheStep::Fork& ask, std::vector<model::PageCopy>& copies);
    [[nodiscard]] CacheStepDone::Admitted admit(const CacheStep::Admit& ask);
    void announce(Lease& lease, std::span<const model::TokenId> tokens);

    // Fills matched_ with the cached pages of the longest known prefix of `ask.tokens`.
    [[nodiscard]] Match match(const CacheStep::Admit& ask);
    void take_matched(Lease& lease, std::uint32_t position);
    [[nodiscard]] bool detach_trimmed();
    [[nodiscard]] bool take_pages(std::uint32_t count, std::vector<model::PageId>& into);
    [[nodiscard]] LeaseId new_lease();
    [[nodiscard]] std::uint64_t salt_of(const Lease& lease, std::size_t page) const;

    const model::AttentionWindow window_;
    PrefixPages pages_;
    std::vector<Lease> leases_;
    std::vector<LeaseId> free_leases_;
    std::vector<model::PageId> matched_;
    std::uint32_t leases_live_ = 0;
    std::uint64_t queried_tokens_ = 0;
    std::uint64_t hit_tokens_ = 0;
};

}  // namespace troupe::actors
