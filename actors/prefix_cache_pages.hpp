// Every page of the KV pool as the prefix cache sees it: the free list, the trie of full pages and
// the LRU of those nobody holds. Owned by PrefixCache, engine thread, sends nothing. All operations
// are O(1); nothing allocates after construction.
//
//   free ---take---> held, private --insert--> held, in the trie --unreference--> cached
//    ^                    |                          ^                              |
//    +----unreference-----+                          +----------reference-----------+
//    +----------------------------evict (unreferenced leaves, oldest first)---------+
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/step.hpp"
#include "model/token.hpp"

namespace troupe::actors {

using model::kNoPage;

using PageTokens = std::span<const model::TokenId, model::kPageTokens>;
using PageHash = std::uint64_t (*)(PageTokens tokens);

// Spreads the bits of sixteen ids. Not a secret: equal hashes only cost a comparison.
[[nodiscard]] std::uint64_t hash_page(PageTokens tokens);

// A page together with how often it had been reused when it was looked at: tells whether it is
// still the same prefix.
struct PageVersion {
    model::PageId page = kNoPage;
    std::uint32_t version = 0;
    friend bool operator==(const PageVersion&, const PageVersion&) = default;
};

class PrefixPages {
 public:
    // `hash` is replaced in tests that force collisions.
    PrefixPages(std::uint32_t pages_total, PageHash hash);

    [[nodiscard]] std::uint32_t total() const { return static_cast<std::uint32_t>(pages_.size()); }
    [[nodiscard]] std::uint32_t free() const { return free_; }
    [[nodiscard]] std::uint32_t cached() const { return cached_; }  // in the trie, held by nobody
    [[nodiscard]] std::uint32_t held() const { return total() - free_ - cached_; }

    // A page for one holder, evicting the oldest cached leaf when none is free; kNoPage when all
    // that is left is held or has held descendants.
    [[nodiscard]] model::PageId take();

    // One more, one fewer holder. A page outside the trie that loses its last one is free.
    void reference(model::PageId page);
    void unreference(model::PageId page);

    // The page under `parent` (kNoPage: the root) with this salt and exactly these tokens.
    [[nodiscard]] model::PageId find(model::PageId parent, std::uint64_t salt,
                                     PageTokens tokens) const;

    // Puts a held page into the trie; `parent` is in it or kNoPage. An unwritten page announces
    // that its holder is computing it.
    void insert(model::PageId page, model::PageId parent, std::uint64_t salt, PageTokens tokens,
                bool written);
    void mark_written(model::PageId page) { pages_[page].written = true; }

    // Takes an unwritten page, which has no children left, out of the trie again.
    void withdraw(model::PageId page);

    // Takes a held page out of the trie, if it has no children there.
    bool take_out_if_leaf(model::PageId page);

    // Frees a written page that nobody holds and that has no children, if it is one.
    bool drop_if_unused_leaf(model::PageId page);

    [[nodiscard]] bool in_trie(model::PageId page) const { return pages_[page].in_trie; }
    [[nodiscard]] bool written(model::PageId page) const { return pages_[page].written; }
    [[nodiscard]] std::uint32_t references(model::PageId page) const {
        return pages_[page].references;
    }
    [[nodiscard]] PageVersion version(model::PageId page) const {
        return {page, page == kNoPage ? 0 : pages_[page].version};
    }
    [[nodiscard]] bool current(PageVersion seen) const {
        return seen.page == kNoPage || pages_[seen.page].version == seen.version;
    }

    // The first broken rule in words, or empty. Walks everything.
    [[nodiscard]] std::string check_integrity() const;

 private:
    struct Page {
        std::array<model::TokenId, model::kPageTokens> tokens{};
        std::uint64_t salt = 0;
        std::uint64_t last_used = 0;
        model::PageId parent = kNoPage;
        model::PageId bucket_next = kNoPage;  // in its hash bucket; in the free list: the next one
        model::PageId older = kNoPage;        // in the LRU
        model::PageId newer = kNoPage;
        std::uint32_t bucket = 0;
        std::uint32_t references = 0;
        std::uint32_t children = 0;
        std::uint32_t version = 0;
        bool in_trie = false;
        bool written = false;
        bool in_lru = false;
    };

    [[nodiscard]] std::uint32_t bucket_of(model::PageId parent, std::uint64_t salt,
                                          PageTokens tokens) const;
    void remove_from_trie(model::PageId page);
    void to_free_list(model::PageId page);
    void consider_for_lru(model::PageId page, bool as_oldest);
    void leave_lru(model::PageId page);

    std::vector<Page> pages_;
    std::vector<model::PageId> buckets_;
    PageHash hash_;
    std::uint64_t clock_ = 0;  // counts uses; orders the LRU
    model::PageId free_head_ = kNoPage;
    model::PageId oldest_ = kNoPage;
    model::PageId newest_ = kNoPage;
    std::uint32_t free_ = 0;
    std::uint32_t cached_ = 0;
};

}  // namespace troupe::actors
