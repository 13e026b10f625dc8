#include "gpu/step_arrays.hpp"

namespace troupe::gpu {
namespace {

constexpr std::size_t kArrayAlignment = 16;

std::size_t padded(std::size_t bytes) {
    return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

// Calls visit(array, pointer) for each, in the order in which they lie.
template <class Arrays, class Visit>
void for_each_layer_array(Arrays& arrays, StepPointers& pointers, Visit visit) {
    visit(arrays.places, pointers.places);
    visit(arrays.angle_rows, pointers.angle_rows);
    visit(arrays.items, pointers.items);
    visit(arrays.wide_items, pointers.wide_items);
    visit(arrays.merges, pointers.merges);
    visit(arrays.far_angles, pointers.far_angles);
}
template <class Arrays, class Visit>
void for_each_array(Arrays& arrays, StepPointers& pointers, Visit visit) {
    for_each_layer_array(arrays, pointers, visit);
    visit(arrays.grants, pointers.grants);
    visit(arrays.cleared_counts, pointers.cleared_counts);
    visit(arrays.count_edits, pointers.count_edits);
    visit(arrays.copies, pointers.copies);
    visit(arrays.given, pointers.given);
    visit(arrays.row_counts, pointers.row_counts);
    visit(arrays.score_rows, pointers.score_rows);
    visit(arrays.samples, pointers.samples);
    visit(arrays.bias, pointers.bias);
}

}  // namespace

void StepArrays::clear() {
    StepPointers none;
    for_each_array(*this, none, [](auto& array, auto&) { array.clear(); });
}

LayerSizes StepArrays::layer_sizes() const {
    const auto size_of = [](const auto& array) { return static_cast<std::uint32_t>(array.size()); };
    return {size_of(places), size_of(items), size_of(merges), size_of(wide_items)};
}

std::size_t layer_arrays_bytes(const StepArrays& arrays) {
    StepPointers none;
    std::size_t bytes = 0;
    for_each_layer_array(arrays, none, [&](const auto& array, auto&) {
        bytes += padded(array.size() * sizeof(array[0]));
    });
    return bytes;
}

StepPointers layer_arrays_at(const StepArrays& arrays, std::byte* begin) {
    StepPointers pointers;
    std::byte* at = begin;
    for_each_layer_array(arrays, pointers, [&]<class T>(const std::vector<T>& array, const T*& p) {
        p = reinterpret_cast<const T*>(at);
        at += padded(array.size() * sizeof(T));
    });
    return pointers;
}

StepPointers StepUpload::start(const StepArrays& arrays, const Stream& stream) {
    StepPointers pointers;
    std::size_t bytes = 0;
    for_each_array(arrays, pointers, [&](const auto& array, auto&) {
        bytes += padded(array.size() * sizeof(array[0]));
    });
    if (bytes > pinned_.size()) {
        pinned_ = PinnedBuffer<std::byte>(2 * bytes);
        device_ = DeviceBuffer<std::byte>(2 * bytes);
    }
    std::size_t at = 0;
    for_each_array(arrays, pointers, [&]<class T>(const std::vector<T>& array, const T*& pointer) {
        if (array.empty()) return;
        std::memcpy(pinned_.data() + at, array.data(), array.size() * sizeof(T));
        pointer = reinterpret_cast<const T*>(device_.data() + at);
        at += padded(array.size() * sizeof(T));
    });
    if (at > 0) {
        CUDA_CHECK(cudaMemcpyAsync(device_.data(), pinned_.data(), at, cudaMemcpyHostToDevice,
                                   stream.get()));
    }
    return pointers;
}

}  // namespace troupe::gpu
