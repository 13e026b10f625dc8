// The layers of small steps as CUDA graphs: hundreds of launches that are recorded once and started
// as one. A graph knows its launches' sizes and pointers; so steps are filled up to a few sizes
// (padded_sizes()), and what changes from step to step is copied to one place before the graph
// runs. For a single rank: exchanges between several are not recorded. Belongs to the executor's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "gpu/device_memory.hpp"
#include "gpu/ranks.hpp"
#include "gpu/step_arrays.hpp"

namespace troupe::gpu {

// Steps of more rows are launched kernel by kernel: they take longer than their launches.
inline constexpr std::uint32_t kGraphRowsMax = 64;

// Rows: one, or whole tiles of a product, which costs them nothing. Of each number of rows there
// are few graphs: items are as many as rows, or else a power of two; merges none, or as many as
// rows. Wide items are for larger steps.
[[nodiscard]] LayerSizes padded_sizes(const LayerSizes& sizes);

class LayerGraphs {
 public:
    // `items_max`: of a step's attention. Throws BackendError, as all of this does.
    LayerGraphs(Ranks& ranks, std::uint32_t items_max, std::uint32_t rotated);

    // All rows of a step, which has one of padded_sizes(), through all layers. The arrays must be
    // on their way to the rank.
    void run(const StepArrays& arrays, std::size_t turn);

 private:
    Ranks& ranks_;
    DeviceBuffer<std::byte> arrays_;  // what the graphs read
    std::map<LayerSizes, Graph> graphs_;
};

}  // namespace troupe::gpu
