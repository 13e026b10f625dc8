// The ranks that share a model, a card each; mostly a single one. Puts a step's work on all their
// streams, exchange by exchange, and waits for it. Parts of sums are gathered and added on every
// rank, in the order of ranks, so that all have the same residual stream bit for bit, whatever the
// step. The first rank draws. Belongs to the executor's thread, which drives all cards; between
// calls it has chosen the first.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gpu/cards.hpp"
#include "gpu/collectives.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/device_model.hpp"
#include "gpu/forward.hpp"
#include "gpu/rotary_frequencies.hpp"
#include "gpu/step_arrays.hpp"

namespace troupe::gpu {

// Of one of the two steps that may be under way.
struct RankStep {
    StepUpload upload;
    Event uploaded;
    Event computed;
};

struct Rank {
    Rank(int its_card, DeviceModel its_model, const RotaryFrequencies& frequencies,
         const Forward::Limits& limits)
        : card(its_card), model(std::move(its_model)), forward(model, frequencies, limits) {}

    [[nodiscard]] std::size_t number() const { return model.rank.rank; }

    const int card;
    const DeviceModel model;
    Forward forward;
    Stream uploads;
    Stream compute;
    std::array<RankStep, 2> steps;
};

struct LayerRange {
    std::uint32_t begin = 0, end = 0;
};

class Ranks {
 public:
    // `collectives` between all of them; null for a single one. Throws BackendError, as all of this
    // does.
    Ranks(const std::vector<int>& cards, std::vector<DeviceModel> models,
          std::unique_ptr<Collectives> collectives, const RotaryFrequencies& frequencies,
          const Forward::Limits& limits);

    [[nodiscard]] Rank& first() { return *ranks_.front(); }
    [[nodiscard]] const Rank& first() const { return *ranks_.front(); }
    [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(ranks_.size()); }
    // For the calling thread, which may be another than before.
    void select_first() const { select_card(first().card); }
    // act(rank) with its card chosen; then the first is again.
    template <class Act>
    void for_each_rank(Act act) {
        if (count() == 1) return act(first());
        for (const std::unique_ptr<Rank>& rank : ranks_) {
            select_card(rank->card);
            act(*rank);
        }
        select_first();
    }

    [[nodiscard]] std::uint64_t page_bytes() const;  // on all cards together
    [[nodiscard]] std::uint64_t least_free_bytes();  // of any of them
    void allocate_pages(std::uint32_t pages);

    // The parts of a step, in this order; `turn` is which of the two that may be under way.
    void upload(const StepArrays& arrays, std::size_t turn);
    [[nodiscard]] const std::vector<StepPointers>& pointers(std::size_t turn) const {
        return pointers_[turn];
    }
    void apply_books(const StepArrays& arrays, std::size_t turn);
    [[nodiscard]] LayerRange all_layers() const { return {0, first().forward.layers()}; }
    // All rows through these layers, to the first of which they come embedded.
    void run_layers(LayerRange layers, const LayerSizes& sizes,
                    std::span<const StepPointers> pointers);               // [ranks]
    void score(std::uint32_t begin, std::uint32_t end, std::size_t turn);  // of its score rows
    void share_draws();  // the first rank's, for what the others compute next
    void finish(std::size_t turn);
    // Until `downloaded`, an event of the first rank, and all ranks' work of the step.
    void wait(const Event& downloaded, std::size_t turn);

    // After a BackendError: no rank goes on waiting for one that may never come. The ranks are of
    // no use then, if there are several. Graphs that hold exchanges must be gone: NCCL would wait
    // for that.
    void end_exchanges();
    // Waits for what is under way. False where exchanges have failed or been ended.
    [[nodiscard]] bool come_to_rest();

 private:
    void add_up(std::uint32_t rows);
    void wait_for_all(std::size_t turn);

    std::vector<std::unique_ptr<Rank>> ranks_;
    std::array<std::vector<StepPointers>, 2> pointers_;  // [ranks] of the step's arrays
    std::vector<RankBuffer<float>> gathered_;
    std::vector<RankBuffer<std::int32_t>> drawn_;
    std::unique_ptr<Collectives> collectives_;  // ends before what it exchanges
    bool exchanges_ended_ = false;
};

}  // namespace troupe::gpu
