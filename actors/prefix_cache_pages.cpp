#include "actors/prefix_cache_pages.hpp"

#include <algorithm>
#include <bit>

#include "runtime/base/assert.hpp"
#include "runtime/base/random.hpp"

namespace troupe::actors {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    return mix_bits(hash * 0x9e3779b97f4a7c15u + value);
}

}  // namespace

std::uint64_t hash_page(PageTokens tokens) {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < tokens.size(); i += 2) {
        const auto low = static_cast<std::uint32_t>(tokens[i]);
        const auto high = static_cast<std::uint32_t>(tokens[i + 1]);
        hash = mixed(hash, (std::uint64_t{high} << 32) | low);
    }
    return hash;
}

PrefixPages::PrefixPages(std::uint32_t pages_total, PageHash hash)
    : pages_(pages_total), buckets_(std::bit_ceil(pages_total * 2 + 1), kNoPage), hash_(hash) {
    for (std::uint32_t page = pages_total; page-- > 0;)
        to_free_list(page);
}

model::PageId PrefixPages::take() {
    if (free_head_ == kNoPage) {
        const model::PageId victim = oldest_;
        if (victim == kNoPage) return kNoPage;
        leave_lru(victim);
        --cached_;
        remove_from_trie(victim);
        to_free_list(victim);
    }
    const model::PageId page = free_head_;
    free_head_ = pages_[page].bucket_next;
    --free_;
    pages_[page].bucket_next = kNoPage;
    pages_[page].references = 1;
    return page;
}

void PrefixPages::reference(model::PageId page) {
    Page& p = pages_[page];
    if (p.references == 0) {
        TROUPE_ASSERT(p.in_trie, "a free page is taken, not referenced");
        leave_lru(page);
        --cached_;
    }
    ++p.references;
    p.last_used = ++clock_;
}

void PrefixPages::unreference(model::PageId page) {
    Page& p = pages_[page];
    TROUPE_ASSERT(p.references > 0, "a page is returned once");
    if (--p.references > 0) return;
    if (!p.in_trie) {
        to_free_list(page);
        return;
    }
    TROUPE_ASSERT(p.written, "an unwritten page is withdrawn before it is returned");
    ++cached_;
    p.last_used = ++clock_;
    consider_for_lru(page, false);
}

model::PageId PrefixPages::find(model::PageId parent, std::uint64_t salt, PageTokens tokens) const {
    model::PageId page = buckets_[bucket_of(parent, salt, tokens)];
    while (page != kNoPage) {
        const Page& p = pages_[page];
        if (p.parent == parent && p.salt == salt && std::ranges::equal(p.tokens, tokens))
            return page;
        page = p.bucket_next;
    }
    return kNoPage;
}

void PrefixPages::insert(model::PageId page, model::PageId parent, std::uint64_t salt,
                         PageTokens tokens, bool written) {
    Page& p = pages_[page];
    TROUPE_ASSERT(p.references > 0 && !p.in_trie, "only a holder publishes, and once");
    std::ranges::copy(tokens, p.tokens.begin());
    p.salt = salt;
    p.parent = parent;
    p.children = 0;
    p.in_trie = true;
    p.written = written;
    p.last_used = ++clock_;
    p.bucket = bucket_of(parent, salt, tokens);
    p.bucket_next = buckets_[p.bucket];
    buckets_[p.bucket] = page;
    if (parent == kNoPage) return;
    TROUPE_ASSERT(pages_[parent].in_trie, "the parent of a page is in the trie");
    ++pages_[parent].children;
    leave_lru(parent);
}

void PrefixPages::withdraw(model::PageId page) {
    TROUPE_ASSERT(pages_[page].in_trie && !pages_[page].written,
                  "only announcements are withdrawn");
    remove_from_trie(page);
}

bool PrefixPages::take_out_if_leaf(model::PageId page) {
    TROUPE_ASSERT(pages_[page].references > 0, "what nobody holds is evicted");
    if (pages_[page].children > 0) return false;
    remove_from_trie(page);
    return true;
}

bool PrefixPages::drop_if_unused_leaf(model::PageId page) {
    if (!pages_[page].in_lru) return false;
    leave_lru(page);
    --cached_;
    remove_from_trie(page);
    to_free_list(page);
    return true;
}

std::uint32_t PrefixPages::bucket_of(model::PageId parent, std::uint64_t salt,
                                     PageTokens tokens) const {
    const std::uint64_t key = mixed(mixed(hash_(tokens), salt), parent);
    return static_cast<std::uint32_t>(key & (buckets_.size() - 1));
}

void PrefixPages::remove_from_trie(model::PageId page) {
    Page& p = pages_[page];
    TROUPE_ASSERT(p.children == 0, "a page leaves the trie after its children");
    model::PageId* link = &buckets_[p.bucket];
    while (*link != page)
        link = &pages_[*link].bucket_next;
    *link = p.bucket_next;
    p.bucket_next = kNoPage;
    p.in_trie = false;
    p.written = false;
    ++p.version;
    if (p.parent == kNoPage) return;
    Page& parent = pages_[p.parent];
    --parent.children;
    // A parent that was last used with this child is as old as it: next to go.
    if (parent.references == 0) consider_for_lru(p.parent, parent.last_used <= p.last_used + 1);
    p.parent = kNoPage;
}

void PrefixPages::to_free_list(model::PageId page) {
    pages_[page].bucket_next = free_head_;
    free_head_ = page;
    ++free_;
}

void PrefixPages::consider_for_lru(model::PageId page, bool as_oldest) {
    Page& p = pages_[page];
    if (p.children > 0 || p.references > 0 || p.in_lru) return;
    p.in_lru = true;
    p.older = as_oldest ? kNoPage : newest_;
    p.newer = as_oldest ? oldest_ : kNoPage;
    (p.older == kNoPage ? oldest_ : pages_[p.older].newer) = page;
    (p.newer == kNoPage ? newest_ : pages_[p.newer].older) = page;
}

void PrefixPages::leave_lru(model::PageId page) {
    Page& p = pages_[page];
    if (!p.in_lru) return;
    (p.older == kNoPage ? oldest_ : pages_[p.older].newer) = p.newer;
    (p.newer == kNoPage ? newest_ : pages_[p.newer].older) = p.older;
    p.older = kNoPage;
    p.newer = kNoPage;
    p.in_lru = false;
}

std::string PrefixPages::check_integrity() const {
    std::uint32_t free = 0;
    for (model::PageId page = free_head_; page != kNoPage; page = pages_[page].bucket_next) {
        if (pages_[page].references != 0 || pages_[page].in_trie) return "a free page is in use";
        if (++free > total()) return "the free list has a cycle";
    }
    std::uint32_t listed = 0;
    for (model::PageId page = oldest_; page != kNoPage; page = pages_[page].newer) {
        if (!pages_[page].in_lru || ++listed > total()) return "the LRU is broken";
    }
    std::vector<std::uint32_t> children(total(), 0);
    std::uint32_t cached = 0, held = 0, leaves = 0;
    for (model::PageId page = 0; page < total(); ++page) {
        const Page& p = pages_[page];
        const bool unused = p.in_trie && p.references == 0;
        if (unused && !p.written) return "an unwritten page has no holder";
        if (p.in_lru != (unused && p.children == 0)) return "the LRU is not the unused leaves";
        cached += unused;
        leaves += p.in_lru;
        held += p.references > 0;
        if (!p.in_trie) continue;
        if (find(p.parent, p.salt, PageTokens(p.tokens)) != page) return "a page is not findable";
        if (p.parent == kNoPage) continue;
        if (!pages_[p.parent].in_trie) return "a parent is not in the trie";
        if (p.written && !pages_[p.parent].written) return "a written page has an unwritten parent";
        ++children[p.parent];
    }
    for (model::PageId page = 0; page < total(); ++page) {
        if (children[page] != (pages_[page].in_trie ? pages_[page].children : 0)) {
            return "children are miscounted";
        }
    }
    if (leaves != listed) return "the LRU has strangers";
    if (free != free_ || cached != cached_) return "the counters are wrong";
    if (free + cached + held != total()) return "free + cached + held is not the total";
    return {};
}

}  // namespace troupe::actors
