#include "gpu/step_arrays.hpp"

namespace troupe::gpu {
namespace {

constexpr std::size_t kArrayAlignment = 16;

std::size_t padded(std::size_t bytes) {
    return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

}  // namespace

StepPointers StepUpload::start(const StepArrays& arrays, const Stream& stream) {
    std::size_t bytes = 0;
    StepArrays::for_each(
        arrays, [&](const auto& array) { bytes += padded(array.size() * sizeof(array[0])); });
    if (bytes > pinned_.size()) {
        pinned_ = PinnedBuffer<std::byte>(2 * bytes);
        device_ = DeviceBuffer<std::byte>(2 * bytes);
    }
    std::size_t at = 0;
    const auto place = [&]<class T>(const std::vector<T>& array) -> const T* {
        if (array.empty()) return nullptr;
        const std::size_t begin = at;
        std::memcpy(pinned_.data() + begin, array.data(), array.size() * sizeof(T));
        at += padded(array.size() * sizeof(T));
        return reinterpret_cast<const T*>(device_.data() + begin);
    };
    const StepPointers pointers{place(arrays.grants),      place(arrays.cleared_counts),
                                place(arrays.count_edits), place(arrays.copies),
                                place(arrays.given),       place(arrays.places),
                                place(arrays.row_counts),  place(arrays.angle_rows),
                                place(arrays.far_angles),  place(arrays.items),
                                place(arrays.merges),      place(arrays.score_rows),
                                place(arrays.samples),     place(arrays.bias)};
    if (at > 0) {
        CUDA_CHECK(cudaMemcpyAsync(device_.data(), pinned_.data(), at, cudaMemcpyHostToDevice,
                                   stream.get()));
    }
    return pointers;
}

}  // namespace troupe::gpu
