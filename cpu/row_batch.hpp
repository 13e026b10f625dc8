// One step's rows as the forward pass sees them: every token of every sequence is a row, sequences
// one after another. Built by the backend from a StepPlan; reused from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "model/step.hpp"

namespace troupe::cpu {

// The consecutive rows of one sequence.
struct RowRun {
    const model::PageId* pages = nullptr;  // the slot's page table
    std::uint32_t position = 0;            // of the first row
    std::uint32_t row_begin = 0;
    std::uint32_t row_count = 0;
};

struct RowBatch {
    std::vector<model::TokenId> tokens;    // [rows], each a valid id
    std::vector<std::uint32_t> positions;  // [rows]
    std::vector<model::PageId> pages;      // [rows], where the row's keys and values go
    std::vector<RowRun> runs;

    [[nodiscard]] std::uint32_t rows() const { return static_cast<std::uint32_t>(tokens.size()); }

    void reserve(std::uint32_t rows_max) {
        tokens.reserve(rows_max);
        positions.reserve(rows_max);
        pages.reserve(rows_max);
        runs.reserve(rows_max);
    }
    void clear() {
        tokens.clear();
        positions.clear();
        pages.clear();
        runs.clear();
    }
};

}  // namespace troupe::cpu
