#include "runtime/offload.hpp"

#include <algorithm>

namespace troupe::runtime {

Offload::Offload(const std::vector<Lane*>& helpers, std::size_t jobs_max) : jobs_max_(jobs_max) {
    TROUPE_ASSERT(!helpers.empty());
    for (Lane* lane : helpers)
        helpers_.emplace_back(*lane);
}

std::size_t Offload::jobs() const noexcept {
    return jobs_.load(std::memory_order_relaxed);
}

Offload::Helper& Offload::least_loaded() {
    const std::size_t before = jobs_.fetch_add(1, std::memory_order_relaxed);
    TROUPE_ASSERT(before < jobs_max_, "too many offloaded jobs");
    Helper& helper = *std::ranges::min_element(helpers_, {}, [](const Helper& candidate) {
        return candidate.jobs.load(std::memory_order_relaxed);
    });
    helper.jobs.fetch_add(1, std::memory_order_relaxed);
    return helper;
}

void Offload::job_done(Helper& helper) noexcept {
    helper.jobs.fetch_sub(1, std::memory_order_relaxed);
    jobs_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace troupe::runtime
