// The CUDA backend proper, on cards that work: submit() builds a step's arrays and starts upload,
// kernels and download, each on a stream of its own with events between; wait() reads the results.
// All ranks compute, the first one draws. Two steps have each their own buffers. A step after one
// that draws on the host is held back until that draw is made. Belongs to the executor's thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpu/cards.hpp"
#include "gpu/cuda_backend.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/device_model.hpp"
#include "gpu/kernels/sample.hpp"
#include "gpu/layer_graphs.hpp"
#include "gpu/ranks.hpp"
#include "gpu/slot_table.hpp"
#include "gpu/step_arrays.hpp"
#include "gpu/step_builder.hpp"
#include "gpu/step_clock.hpp"
#include "model/backend.hpp"
#include "model/sampler.hpp"
#include "runtime/base/result.hpp"

namespace troupe::gpu {

// A step from submit() to wait(), and its buffers.
struct StepSlot {
    StepRecord record;
    StepArrays arrays;
    DeviceBuffer<SampleResult> device_results;  // [rows_max]
    PinnedBuffer<SampleResult> results;         // [rows_max]
    PinnedBuffer<float> scores;                 // [host scores][vocabulary], grows
    Event downloaded;
    std::chrono::steady_clock::time_point started;
};

class DeviceBackend final : public model::Backend {
 public:
    // Throws BackendError, as all of this does.
    DeviceBackend(const Cards& cards, std::vector<DeviceModel> models,
                  std::unique_ptr<Collectives> collectives, model::BackendInfo info,
                  const CudaOptions& options);

    [[nodiscard]] const model::BackendInfo& info() const override { return info_; }
    void submit(const model::StepPlan& plan) override;
    void wait(model::StepResult& result) override;
    void reset() override;

    // Once, before any step. Error: out_of_memory, saying what to change.
    [[nodiscard]] Result<> allocate_pages(const CudaOptions& options);

    // As of Ranks; whatever fails in the second is ended by it.
    void end_exchanges();
    [[nodiscard]] bool come_to_rest();

 private:
    void start(const model::StepPlan& plan);
    void compute(StepSlot& step, std::size_t turn);
    void score_and_sample(StepSlot& step, std::size_t turn);
    void copy_scores(StepSlot& step, std::uint32_t begin, std::uint32_t end);
    void read(StepSlot& step, model::StepResult& result);
    void read_row(StepSlot& step, const ScoredRow& scored, model::StepResult& result);
    [[nodiscard]] bool read_draw(const StepSlot& step, const ScoredRow& scored,
                                 model::StepResult& result);
    [[nodiscard]] bool score_target(const StepSlot& step, const ScoredRow& scored,
                                    model::StepResult& result);
    [[nodiscard]] bool draw_on_host(const StepSlot& step, const ScoredRow& scored,
                                    model::StepResult& result);
    void settle(const StepSlot& step, const model::StepResult& result);

    model::BackendInfo info_;
    const model::Hyperparameters hp_;  // the first rank's, of which only what is all ranks' is used
    Ranks ranks_;
    Forward& forward_;  // the first rank's
    DeviceBuffer<model::TokenId> end_tokens_;
    std::vector<model::TokenId> host_end_tokens_;
    const bool with_graphs_;
    LayerGraphs graphs_;          // end before exchanges, which they hold
    DeviceBuffer<float> edited_;  // [score rows][vocabulary]
    SlotTable slots_;
    StepBuilder builder_;
    Stream downloads_;
    std::optional<StepClock> clock_;  // where steps are timed
    std::array<StepSlot, 2> steps_;
    std::uint64_t started_ = 0;  // steps so far; step n has steps_[n % 2]
    std::uint64_t read_ = 0;
    const model::StepPlan* held_back_ = nullptr;
    std::chrono::steady_clock::time_point last_read_;
    std::vector<float> row_;  // scores that the host draws from
    model::SamplerScratch scratch_;
};

}  // namespace troupe::gpu
