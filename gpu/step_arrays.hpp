// A step's plan as the kernels read it: arrays that the host fills and that reach the device as one
// copy. Belongs to the executor's thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/kernels/attention.hpp"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/sample.hpp"
#include "gpu/kernels/step_tables.hpp"

namespace troupe::gpu {

// How large the layers' kernels are launched.
struct LayerSizes {
    std::uint32_t rows = 0, items = 0, merges = 0, wide_items = 0;
    friend auto operator<=>(const LayerSizes&, const LayerSizes&) = default;
};

struct StepArrays {
    std::vector<RowPlace> places;       // [rows]
    std::vector<AngleRows> angle_rows;  // [rows]
    std::vector<AttentionItem> items;
    std::vector<AttentionItem> wide_items;
    std::vector<AttentionMerge> merges;
    std::vector<float> far_angles;  // of positions that the table does not have
    std::vector<TableEntry> grants;
    std::vector<std::uint32_t> cleared_counts;
    std::vector<CountEdit> count_edits;
    std::vector<CopiedPage> copies;
    std::vector<std::int32_t> given;        // [rows]
    std::vector<std::uint8_t> row_counts;   // [rows]
    std::vector<std::uint32_t> score_rows;  // rows whose scores are wanted
    std::vector<SampleRow> samples;         // score_row counts from 0 over the whole step
    std::vector<BiasEntry> bias;

    void clear();
    [[nodiscard]] LayerSizes layer_sizes() const;
};

// The same arrays in device memory; null where an array is empty.
struct StepPointers {
    const RowPlace* places = nullptr;
    const AngleRows* angle_rows = nullptr;
    const AttentionItem* items = nullptr;
    const AttentionItem* wide_items = nullptr;
    const AttentionMerge* merges = nullptr;
    const float* far_angles = nullptr;
    const TableEntry* grants = nullptr;
    const std::uint32_t* cleared_counts = nullptr;
    const CountEdit* count_edits = nullptr;
    const CopiedPage* copies = nullptr;
    const std::int32_t* given = nullptr;
    const std::uint8_t* row_counts = nullptr;
    const std::uint32_t* score_rows = nullptr;
    const SampleRow* samples = nullptr;
    const BiasEntry* bias = nullptr;
};

// The arrays that layers read come first, one behind the other: this many bytes of the copy. Where
// each begins follows from the sizes of those before it.
[[nodiscard]] std::size_t layer_arrays_bytes(const StepArrays& arrays);
// Where those arrays lie in a piece of memory that begins with them.
[[nodiscard]] StepPointers layer_arrays_at(const StepArrays& arrays, std::byte* begin);

// Pinned and device memory for one step's arrays. Grows when a step needs more than any before.
class StepUpload {
 public:
    // Starts the copy on `stream`. The copy before must be over. Throws BackendError.
    [[nodiscard]] StepPointers start(const StepArrays& arrays, const Stream& stream);

 private:
    PinnedBuffer<std::byte> pinned_;
    DeviceBuffer<std::byte> device_;
};

}  // namespace troupe::gpu
