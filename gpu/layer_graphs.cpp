#include "gpu/layer_graphs.hpp"

#include <algorithm>
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
    : ranks_(ranks) {
    ranks_.for_each_rank([&](Rank&) { arrays_.emplace_back(most_bytes(items_max, rotated)); });
}

void LayerGraphs::run(const StepArrays& arrays, std::size_t turn) {
    const LayerSizes sizes = arrays.layer_sizes();
    TROUPE_ASSERT(sizes.rows <= kGraphRowsMax && padded_sizes(sizes) == sizes);
    const auto [found, is_new] = graphs_.try_emplace(sizes);
    std::vector<RankGraphs>& graphs = found->second;
    // NCCL may connect the ranks when a size is exchanged first: better not while it is recorded.
    if (is_new && ranks_.count() > 1)
        return ranks_.run_layers(ranks_.all_layers(), sizes, ranks_.pointers(turn));
    if (graphs.empty()) graphs = record(arrays);
    const std::size_t bytes = layer_arrays_bytes(arrays);
    TROUPE_ASSERT(bytes <= arrays_.front().bytes());
    ranks_.for_each_rank([&](Rank& rank) {
        CUDA_CHECK(cudaMemcpyAsync(arrays_[rank.number()].data(),
                                   ranks_.pointers(turn)[rank.number()].places, bytes,
                                   cudaMemcpyDeviceToDevice, rank.compute.get()));
    });
    for (const RankGraphs& of_ranks : graphs)
        ranks_.for_each_rank([&](Rank& rank) { of_ranks[rank.number()].launch(rank.compute); });
}

std::vector<LayerGraphs::RankGraphs> LayerGraphs::record(const StepArrays& arrays) {
    std::vector<StepPointers> pointers;
    for (const DeviceBuffer<std::byte>& fixed : arrays_)
        pointers.push_back(layer_arrays_at(arrays, fixed.data()));
    const std::uint32_t end = ranks_.all_layers().end;
    const std::uint32_t step = ranks_.count() == 1 ? end : kGraphLayersMax;
    std::vector<RankGraphs> graphs;
    for (std::uint32_t begin = 0; begin < end; begin += step)
        graphs.push_back(
            record({begin, std::min(begin + step, end)}, arrays.layer_sizes(), pointers));
    return graphs;
}

// All ranks at once, as an exchange is recorded by all of them or by none.
LayerGraphs::RankGraphs LayerGraphs::record(LayerRange layers, const LayerSizes& sizes,
                                            std::span<const StepPointers> pointers) {
    std::vector<Capture> captures;
    ranks_.for_each_rank([&](Rank& rank) { captures.emplace_back(rank.compute); });
    ranks_.run_layers(layers, sizes, pointers);
    std::vector<RecordedGraph> recorded;
    for (Capture& capture : captures)
        recorded.push_back(capture.end());
    RankGraphs graphs;
    ranks_.for_each_rank(
        [&](Rank& rank) { graphs.emplace_back(recorded[rank.number()], rank.compute); });
    return graphs;
}

}  // namespace troupe::gpu
