#include "gpu/layer_graphs.hpp"

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
            sizes.merges == 0 ? 0 : rows};
}

LayerGraphs::LayerGraphs(Forward& forward, std::uint32_t items_max, std::uint32_t rotated)
    : forward_(forward), arrays_(most_bytes(items_max, rotated)) {}

void LayerGraphs::run(const StepArrays& arrays, const StepPointers& pointers,
                      const Stream& stream) {
    const LayerSizes sizes = arrays.layer_sizes();
    TROUPE_ASSERT(sizes.rows <= kGraphRowsMax && padded_sizes(sizes) == sizes);
    const std::size_t bytes = layer_arrays_bytes(arrays);
    TROUPE_ASSERT(bytes <= arrays_.bytes());
    CUDA_CHECK(cudaMemcpyAsync(arrays_.data(), pointers.places, bytes, cudaMemcpyDeviceToDevice,
                               stream.get()));
    auto graph = graphs_.find(sizes);
    if (graph == graphs_.end()) {
        const StepPointers fixed = layer_arrays_at(arrays, arrays_.data());
        graph = graphs_
                    .emplace(sizes, Graph::capture(
                                        stream, [&] { forward_.run_layers(sizes, fixed, stream); }))
                    .first;
    }
    graph->second.launch(stream);
}

}  // namespace troupe::gpu
