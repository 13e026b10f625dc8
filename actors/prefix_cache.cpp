#include "actors/prefix_cache.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

using model::kPageTokens;

PageTokens page_of(std::span<const model::TokenId> tokens, std::size_t page) {
    return PageTokens(tokens.subspan(page * kPageTokens, kPageTokens));
}

// Shared pages lie under salt 0, whoever asks: only whole pages of declared text are shared.
std::uint64_t page_salt(std::uint64_t salt, std::uint32_t shared_tokens, std::size_t page) {
    return (page + 1) * kPageTokens <= shared_tokens ? 0 : salt;
}

CacheStepDone::Admitted refused(CacheStepDone::Refusal why, PageVersion waits_for = {}) {
    return {why, kNoLease, 0, waits_for};
}

}  // namespace

void CacheStep::clear() {
    publish.clear();
    trim.clear();
    release.clear();
    grow.clear();
    fork.clear();
    admit.clear();
}

void CacheStepDone::clear() {
    grown.clear();
    forked.clear();
    copies.clear();
    admitted.clear();
    pages_free = 0;
}

PrefixCache::PrefixCache(std::uint32_t pages_total, model::AttentionWindow window, PageHash hash)
    : window_(window), pages_(pages_total, hash) {}

void PrefixCache::step(const CacheStep& ask, CacheStepDone& done) {
    done.clear();
    for (const auto& p : ask.publish)
        publish(leases_[p.lease], p.written);
    for (const auto& t : ask.trim)
        trim(leases_[t.lease], t.position);
    for (const LeaseId lease : ask.release)
        release(lease);
    for (const auto& g : ask.grow)
        done.grown.push_back(grow(leases_[g.lease], g.pages));
    for (const auto& f : ask.fork)
        done.forked.push_back(fork(f, done.copies));
    bool out_of_pages = false;
    for (const auto& a : ask.admit) {
        if (out_of_pages) {
            done.admitted.push_back(refused(CacheStepDone::Refusal::behind));
            continue;
        }
        done.admitted.push_back(admit(a));
        out_of_pages = done.admitted.back().refusal == CacheStepDone::Refusal::no_pages;
    }
    done.pages_free = pages_.free() + pages_.cached();
}

std::span<const model::PageId> PrefixCache::pages(LeaseId lease) const {
    TROUPE_ASSERT(leases_[lease].live, "a lease is used until its release");
    return leases_[lease].pages;
}

bool PrefixCache::pending(PageVersion page) const {
    return page.page != kNoPage && pages_.current(page) && !pages_.written(page.page);
}

PrefixCacheStats PrefixCache::stats() const {
    return {.pages_total = pages_.total(),
            .pages_leased = pages_.held(),
            .pages_cached = pages_.cached(),
            .queried_tokens = queried_tokens_,
            .hit_tokens = hit_tokens_};
}

// Where another lease has published the same tokens before, this lease's page stays private and the
// walk goes on below the other's page, so that equal text is in the trie once. Where the lease has
// given a page back that is not known any more, nothing behind it can be.
void PrefixCache::publish(Lease& lease, std::span<const model::TokenId> written) {
    if (lease.detached) return;
    if (!pages_.current(lease.anchor)) {  // it was nobody's and has been evicted
        lease.anchor = {};
        lease.published = 0;
    }
    const std::size_t full = written.size() / kPageTokens;
    TROUPE_ASSERT(full <= lease.pages.size(), "what is written lies inside the lease");
    for (; lease.published < full; ++lease.published) {
        const std::size_t i = lease.published;
        const model::PageId own = lease.pages[i];
        const model::PageId parent = lease.anchor.page;
        model::PageId found = pages_.find(parent, salt_of(lease, i), page_of(written, i));
        if (own == kNoPage && found == kNoPage) {
            lease.detached = true;
            return;
        }
        const bool replace =
            own != kNoPage && found != kNoPage && found != own && !pages_.in_trie(own);
        if (replace && pages_.drop_if_unused_leaf(found)) found = kNoPage;
        if (found == kNoPage) {
            pages_.insert(own, parent, salt_of(lease, i), page_of(written, i), true);
            found = own;
        } else if (found == own) {
            pages_.mark_written(own);
        } else if (!pages_.written(found)) {
            return;  // another computes it as well and has announced it: go on below it later
        }
        lease.anchor = pages_.version(found);
    }
}

void PrefixCache::trim(Lease& lease, std::uint32_t position) {
    TROUPE_ASSERT(lease.live, "only a live lease is trimmed");
    const std::uint32_t begin = std::max(lease.unread_end, window_.first_unread_page());
    const std::uint32_t end = window_.unread_end(position);
    TROUPE_ASSERT(end <= begin || end <= lease.pages.size(), "queries stand inside the lease");
    for (std::uint32_t i = begin; i < end; ++i) {
        const model::PageId page = std::exchange(lease.pages[i], kNoPage);
        TROUPE_ASSERT(!pages_.in_trie(page) || pages_.written(page),
                      "what is left behind was published");
        pages_.unreference(page);
        lease.unread_end = i + 1;
    }
}

void PrefixCache::release(LeaseId id) {
    Lease& lease = leases_[id];
    TROUPE_ASSERT(lease.live, "a lease is released once");
    // Deepest first: children leave the trie before their parents and are older in the LRU.
    for (auto page = lease.pages.rbegin(); page != lease.pages.rend(); ++page) {
        if (*page == kNoPage) continue;
        if (pages_.in_trie(*page) && !pages_.written(*page)) pages_.withdraw(*page);
        pages_.unreference(*page);
    }
    lease.pages.clear();
    lease.live = false;
    free_leases_.push_back(id);
    --leases_live_;
}

std::uint32_t PrefixCache::grow(Lease& lease, std::uint32_t pages) {
    TROUPE_ASSERT(lease.live, "only a live lease grows");
    return take_pages(pages, lease.pages) ? pages : 0;
}

LeaseId PrefixCache::fork(const CacheStep::Fork& ask, std::vector<model::PageCopy>& copies) {
    const LeaseId id = new_lease();  // before the references below: it may move the leases
    Lease& lease = leases_[id];
    const Lease& source = leases_[ask.source];
    const std::uint32_t full = ask.tokens / kPageTokens;
    const std::uint32_t tail = ask.tokens % kPageTokens;
    TROUPE_ASSERT(source.live && pages_for(ask.tokens) <= source.pages.size(),
                  "a fork lies inside its source");
    for (std::uint32_t i = 0; i < full; ++i) {
        if (source.pages[i] != kNoPage) pages_.reference(source.pages[i]);
        lease.pages.push_back(source.pages[i]);
    }
    lease.salt = source.salt;
    lease.shared_tokens = source.shared_tokens;
    lease.unread_end = source.unread_end;
    lease.detached = source.detached;
    const model::PageId deepest = full > 0 ? source.pages[full - 1] : kNoPage;
    if (deepest != kNoPage && pages_.in_trie(deepest)) {
        lease.published = full;
        lease.anchor = pages_.version(deepest);
    }
    if (!take_pages(pages_for(std::uint64_t{ask.tokens} + ask.growth_tokens) - full, lease.pages)) {
        release(id);
        return kNoLease;
    }
    if (tail > 0) copies.push_back({source.pages[full], lease.pages[full], tail});
    return id;
}

CacheStepDone::Admitted PrefixCache::admit(const CacheStep::Admit& ask) {
    using Refusal = CacheStepDone::Refusal;
    const Match known = match(ask);
    if (known.pending != kNoPage) {
        return refused(Refusal::prefix_pending, pages_.version(known.pending));
    }
    const std::uint32_t cached_tokens = known.pages * kPageTokens;
    const LeaseId id = new_lease();
    Lease& lease = leases_[id];
    take_matched(lease, cached_tokens);
    lease.salt = ask.salt;
    lease.shared_tokens = ask.shared_tokens;
    lease.published = known.pages;
    if (known.pages > 0) lease.anchor = pages_.version(matched_.back());
    const auto holds =
        static_cast<std::uint32_t>(known.pages - std::ranges::count(lease.pages, kNoPage));
    TROUPE_ASSERT(holds < ask.pages_max);
    const std::uint32_t wanted = std::min(
        pages_for(ask.tokens.size() + ask.growth_tokens) - known.pages, ask.pages_max - holds);
    const std::uint32_t available = pages_.free() + pages_.cached();
    if (available < wanted + ask.keep_free || !take_pages(wanted, lease.pages)) {
        release(id);
        return refused(Refusal::no_pages);
    }
    announce(lease, ask.tokens);
    queried_tokens_ += ask.tokens.size();
    hit_tokens_ += cached_tokens;
    return {Refusal::none, id, cached_tokens, {}};
}

// Holds what was found, as far as a query at `position` and after reads it.
void PrefixCache::take_matched(Lease& lease, std::uint32_t position) {
    const std::uint32_t begin = window_.first_unread_page();
    const std::uint32_t end = window_.unread_end(position);
    for (std::uint32_t i = 0; i < matched_.size(); ++i) {
        const bool read = i < begin || i >= end;
        if (read) pages_.reference(matched_[i]);
        lease.pages.push_back(read ? matched_[i] : kNoPage);
    }
    if (end > begin) lease.unread_end = end;
}

void PrefixCache::announce(Lease& lease, std::span<const model::TokenId> tokens) {
    // With a window what was found is not all held: finding room may just have cost the rest.
    if (lease.detached || !pages_.current(lease.anchor)) return;
    model::PageId parent = lease.anchor.page;
    const std::size_t full = std::min(tokens.size() / kPageTokens, lease.pages.size());
    for (std::size_t i = lease.published; i < full; ++i) {
        // The page of the last prompt token may be known: it is computed again, privately.
        if (pages_.find(parent, salt_of(lease, i), page_of(tokens, i)) != kNoPage) return;
        pages_.insert(lease.pages[i], parent, salt_of(lease, i), page_of(tokens, i), false);
        parent = lease.pages[i];
    }
}

PrefixCache::Match PrefixCache::match(const CacheStep::Admit& ask) {
    TROUPE_ASSERT(!ask.tokens.empty(), "a sequence has at least one token");
    matched_.clear();
    Match known;
    model::PageId parent = kNoPage;
    if (ask.computes_all) return known;
    const std::size_t full = (ask.tokens.size() - 1) / kPageTokens;  // the last token is computed
    for (std::size_t i = 0; i < full; ++i) {
        const std::uint64_t salt = page_salt(ask.salt, ask.shared_tokens, i);
        const model::PageId page = pages_.find(parent, salt, page_of(ask.tokens, i));
        if (page == kNoPage) break;
        if (pages_.written(page)) {
            matched_.push_back(page);
            ++known.pages;
        } else {
            known.pending = page;
        }
        parent = page;
    }
    return known;
}

// All or nothing. Cached pages above held ones cannot be evicted, so the counters alone do not
// tell.
bool PrefixCache::take_pages(std::uint32_t count, std::vector<model::PageId>& into) {
    if (pages_.free() + pages_.cached() < count) return false;
    const std::size_t before = into.size();
    for (std::uint32_t i = 0; i < count; ++i) {
        model::PageId page = pages_.take();
        if (page == kNoPage && detach_trimmed()) page = pages_.take();
        if (page == kNoPage) {
            for (std::size_t taken = into.size(); taken-- > before;)
                pages_.unreference(into[taken]);
            into.resize(before);
            return false;
        }
        into.push_back(page);
    }
    return true;
}

// Makes pages evictable that lie above what leases with a window hold; false where there are none.
bool PrefixCache::detach_trimmed() {
    bool any = false;
    for (Lease& lease : leases_) {
        if (!lease.live || lease.unread_end == 0) continue;
        lease.detached = true;
        for (auto page = lease.pages.rbegin(); page != lease.pages.rend(); ++page) {
            if (*page == kNoPage) break;
            if (!pages_.in_trie(*page)) continue;
            if (!pages_.take_out_if_leaf(*page)) break;
            any = true;
        }
    }
    return any;
}

LeaseId PrefixCache::new_lease() {
    if (free_leases_.empty()) {
        free_leases_.push_back(static_cast<LeaseId>(leases_.size()));
        leases_.emplace_back();
    }
    const LeaseId id = free_leases_.back();
    free_leases_.pop_back();
    leases_[id].live = true;
    leases_[id].published = 0;
    leases_[id].anchor = {};
    leases_[id].unread_end = 0;
    leases_[id].detached = false;
    ++leases_live_;
    return id;
}

std::uint64_t PrefixCache::salt_of(const Lease& lease, std::size_t page) const {
    return page_salt(lease.salt, lease.shared_tokens, page);
}

std::string PrefixCache::check_integrity() const {
    std::string broken = pages_.check_integrity();
    if (!broken.empty()) return broken;
    std::vector<std::uint32_t> references(pages_.total(), 0);
    std::uint32_t live = 0;
    for (const Lease& lease : leases_) {
        if (!lease.live && !lease.pages.empty()) return "a released lease has pages";
        live += lease.live;
        for (const model::PageId page : lease.pages) {
            if (page != kNoPage) ++references[page];
        }
    }
    for (model::PageId page = 0; page < pages_.total(); ++page) {
        if (references[page] != pages_.references(page)) return "a page's holders are miscounted";
    }
    if (live != leases_live_) return "live leases are miscounted";
    return {};
}

}  // namespace troupe::actors
