#include "gpu/ranks.hpp"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "model/backend.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gpu {

Ranks::Ranks(const std::vector<int>& cards, std::vector<DeviceModel> models,
             std::unique_ptr<Collectives> collectives, const RotaryFrequencies& frequencies,
             const Forward::Limits& limits)
    : collectives_(std::move(collectives)) {
    TROUPE_ASSERT(cards.size() == models.size() &&
                  (cards.size() == 1) == (collectives_ == nullptr));
    for (std::size_t i = 0; i < cards.size(); ++i) {
        select_card(cards[i]);
        const Rank& rank = *ranks_.emplace_back(
            std::make_unique<Rank>(cards[i], std::move(models[i]), frequencies, limits));
        gathered_.push_back({rank.forward.gathered(), &rank.compute});
        drawn_.push_back({rank.forward.drawn(), &rank.compute});
    }
    for (std::vector<StepPointers>& pointers : pointers_)
        pointers.resize(ranks_.size());
    select_first();
}

std::uint64_t Ranks::page_bytes() const {
    return count() * first().forward.page_bytes();
}

std::uint64_t Ranks::least_free_bytes() {
    std::size_t least = std::numeric_limits<std::size_t>::max();
    for_each_rank([&](Rank&) {
        std::size_t free = 0;
        std::size_t total = 0;
        CUDA_CHECK(cudaMemGetInfo(&free, &total));
        least = std::min(least, free);
    });
    return least;
}

void Ranks::allocate_pages(std::uint32_t pages) {
    for_each_rank([&](Rank& rank) { rank.forward.allocate_pages(pages); });
}

void Ranks::upload(const StepArrays& arrays, std::size_t turn) {
    for_each_rank([&](Rank& rank) {
        RankStep& step = rank.steps[turn];
        pointers_[turn][rank.number()] = step.upload.start(arrays, rank.uploads);
        step.uploaded.record(rank.uploads);
        rank.compute.wait(step.uploaded);
    });
}

void Ranks::apply_books(const StepArrays& arrays, std::size_t turn) {
    for_each_rank([&](Rank& rank) {
        rank.forward.apply_books(arrays, pointers_[turn][rank.number()], rank.compute);
    });
}

void Ranks::run_layers(LayerRange layers, const LayerSizes& sizes,
                       std::span<const StepPointers> pointers) {
    if (sizes.rows == 0) return;
    if (layers.begin == 0)
        for_each_rank([&](Rank& rank) { rank.forward.embed_rows(sizes.rows, rank.compute); });
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
        for_each_rank([&](Rank& rank) {
            rank.forward.attention_block(layer, sizes, pointers[rank.number()], rank.compute);
        });
        add_up(sizes.rows);
        for_each_rank([&](Rank& rank) { rank.forward.ffn_block(layer, sizes.rows, rank.compute); });
        add_up(sizes.rows);
    }
}

// The block's parts of all ranks, to each rank's residual stream.
void Ranks::add_up(std::uint32_t rows) {
    if (!collectives_) return;
    collectives_->all_gather(gathered_, rows * first().forward.width());
    for_each_rank([&](Rank& rank) { rank.forward.add_gathered(rows, rank.compute); });
}

void Ranks::score(std::uint32_t begin, std::uint32_t end, std::size_t turn) {
    const std::uint32_t rows = end - begin;
    for_each_rank([&](Rank& rank) {
        rank.forward.score(pointers_[turn][rank.number()].score_rows + begin, rows, rank.compute);
    });
    if (!collectives_) return;
    collectives_->all_gather(gathered_, rows * first().forward.score_part_width());
    first().forward.join_gathered(rows, first().compute);
}

void Ranks::share_draws() {
    if (collectives_) collectives_->broadcast(drawn_, first().forward.slots());
}

void Ranks::finish(std::size_t turn) {
    for_each_rank([&](Rank& rank) { rank.steps[turn].computed.record(rank.compute); });
}

void Ranks::wait(const Event& downloaded, std::size_t turn) {
    if (collectives_) wait_for_all(turn);
    downloaded.synchronise();
}

// By looking, not by waiting: a rank that is lost leaves the others in an exchange for ever.
void Ranks::wait_for_all(std::size_t turn) {
    for (;;) {
        bool all = true;
        for_each_rank([&](Rank& rank) { all = rank.steps[turn].computed.reached() && all; });
        if (all) return;
        collectives_->check();
        std::this_thread::yield();
    }
}

void Ranks::end_exchanges() {
    if (!collectives_) return;
    collectives_->abort();
    exchanges_ended_ = true;
}

bool Ranks::come_to_rest() {
    if (!collectives_) return true;
    if (exchanges_ended_) return false;
    try {
        wait_for_all(0);
        wait_for_all(1);
    } catch (const model::BackendError&) {
        return false;
    }
    return true;
}

}  // namespace troupe::gpu
