// A step's plan as the kernels read it: arrays that the host fills and that reach the device as one
// copy. Belongs to the executor's thread.
#pragma once

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

struct StepArrays {
    std::vector<TableEntry> grants;
    std::vector<std::uint32_t> cleared_counts;
    std::vector<CountEdit> count_edits;
    std::vector<CopiedPage> copies;
    std::vector<std::int32_t> given;       // [rows]
    std::vector<RowPlace> places;          // [rows]
    std::vector<std::uint8_t> row_counts;  // [rows]
    std::vector<AngleRows> angle_rows;     // [rows]
    std::vector<float> far_angles;         // of positions that the table does not have
    std::vector<AttentionItem> items;
    std::vector<AttentionMerge> merges;
    std::vector<std::uint32_t> score_rows;  // rows whose scores are wanted
    std::vector<SampleRow> samples;         // score_row counts from 0 over the whole step
    std::vector<BiasEntry> bias;

    // Calls visit(array) for each, in one order.
    template <class Self, class Visit>
    static void for_each(Self& self, Visit visit) {
        visit(self.grants), visit(self.cleared_counts), visit(self.count_edits);
        visit(self.copies), visit(self.given), visit(self.places), visit(self.row_counts);
        visit(self.angle_rows), visit(self.far_angles);
        visit(self.items), visit(self.merges), visit(self.score_rows), visit(self.samples);
        visit(self.bias);
    }
    void clear() {
        for_each(*this, [](auto& array) { array.clear(); });
    }
};

// The same arrays in device memory; null where an array is empty.
struct StepPointers {
    const TableEntry* grants = nullptr;
    const std::uint32_t* cleared_counts = nullptr;
    const CountEdit* count_edits = nullptr;
    const CopiedPage* copies = nullptr;
    const std::int32_t* given = nullptr;
    const RowPlace* places = nullptr;
    const std::uint8_t* row_counts = nullptr;
    const AngleRows* angle_rows = nullptr;
    const float* far_angles = nullptr;
    const AttentionItem* items = nullptr;
    const AttentionMerge* merges = nullptr;
    const std::uint32_t* score_rows = nullptr;
    const SampleRow* samples = nullptr;
    const BiasEntry* bias = nullptr;
};

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
