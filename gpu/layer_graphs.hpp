// The layers of small steps as CUDA graphs: hundreds of launches that are recorded once and started
// as one. A graph knows its launches' sizes and pointers; so steps are filled up to a few sizes
// (padded_sizes()), and what changes from step to step is copied to one place before the graph
// runs. Of several ranks each has graphs of its own, recorded together with the exchanges between
// them. Belongs to the executor's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/ranks.hpp"
#include "gpu/step_arrays.hpp"

namespace troupe::gpu {

// Steps of more rows are launched kernel by kernel: they take longer than their launches.
inline constexpr std::uint32_t kGraphRowsMax = 64;
// Of several ranks, whose graphs one thread launches in turn. A launch may wait for room. That is
// made by the work before it, which all ranks have been given; in a long graph it might have to be
// made by the graph's own beginning, which waits for ranks that have yet to be given theirs.
inline constexpr std::uint32_t kGraphLayersMax = 4;

// Rows: one, or whole tiles of a product, which costs them nothing. Of each number of rows there
// are few graphs: items are as many as rows, or else a power of two; merges none, or as many as
// rows. Wide items are for larger steps.
[[nodiscard]] LayerSizes padded_sizes(const LayerSizes& sizes);

class LayerGraphs {
 public:
    // `items_max`: of a step's attention. Throws BackendError, as all of this does.
    LayerGraphs(Ranks& ranks, std::uint32_t items_max, std::uint32_t rotated);

    // All rows of a step, which has one of padded_sizes(), through all layers. The arrays must be
    // on their way to the ranks.
    void run(const StepArrays& arrays, std::size_t turn);
    // Those that are under way go on. Others are recorded when they are needed.
    void clear() { graphs_.clear(); }

 private:
    using RankGraphs = std::vector<Graph>;  // [ranks]
    [[nodiscard]] std::vector<RankGraphs> record(const StepArrays& arrays);
    [[nodiscard]] RankGraphs record(LayerRange layers, const LayerSizes& sizes,
                                    std::span<const StepPointers> pointers);

    Ranks& ranks_;
    std::vector<DeviceBuffer<std::byte>> arrays_;  // [ranks], what the graphs read
    // From the first layers to the last; none where they are yet to be recorded.
    std::map<LayerSizes, std::vector<RankGraphs>> graphs_;
};

}  // namespace troupe::gpu
