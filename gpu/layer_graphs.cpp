#include "gpu/layer_graphs.hpp"

#include <array>
#include <bit>

#include "runtime/base/assert.hpp"

namespace troupe::gpu {
namespace {

constexpr std::uint32_t kTileRows = 8;

// As many as a step of kGraphRowsMax rows may have.
std::size_t most_bytes(std::uint32_t items_max, std::uint32_t rotated) {
    StepArrays arrays;
    arrays.places.resize(kGraphRowsMax);
    arrays.angle_rows.resize(kGraphRowsMax);
    arrays.items.resize(std::bit_ceil(items_max));
    arrays.merges.resize(kGraphRowsMax);
    arrays.far_angles.resize(std::size_t{2} * kGraphRowsMax * rotated);
    return layer_arrays_bytes(arrays);
}

}  // namespace

LayerSizes padded_sizes(const LayerSizes& sizes) {
    const std::uint32_t rows =
        sizes.rows <= 1 ? sizes.rows : (sizes.rows + kTileRows - 1) / kTileRows * kTileRows;
    return {rows, sizes.items <= rows ? rows : std::bit_ceil(sizes.items),
            sizes.merges == 0 ? 0 : rows, sizes.wide_items};
}

LayerGraphs::LayerGraphs(Ranks& ranks, std::uint32_t items_max, std::uint32_t rotated)
    : ranks_(ranks), arrays_(most_bytes(items_max, rotated)) {}

void LayerGraphs::run(const StepArrays& arrays, std::size_t turn) {
    const LayerSizes sizes = arrays.layer_sizes();
    TROUPE_ASSERT(sizes.rows <= kGraphRowsMax && padded_sizes(sizes) == sizes);
    const std::size_t bytes = layer_arrays_bytes(arrays);
    TROUPE_ASSERT(bytes <= arrays_.bytes());
    const Rank& rank = ranks_.first();
    CUDA_CHECK(cudaMemcpyAsync(arrays_.data(), ranks_.pointers(turn).front().places, bytes,
                               cudaMemcpyDeviceToDevice, rank.compute.get()));
    auto graph = graphs_.find(sizes);
    if (graph == graphs_.end()) {
        const std::array<StepPointers, 1> fixed{layer_arrays_at(arrays, arrays_.data())};
        graph = graphs_
                    .emplace(sizes,
                             Graph::capture(rank.compute, [&] { ranks_.run_layers(sizes, fixed); }))
                    .first;
    }
    graph->second.launch(rank.compute);
}

}  // namespace troupe::gpu
