// How a stage's work is cut into pieces for ComputeThreads: small enough that a stalled thread
// holds up little, large enough that handing them out costs nothing. Only speed depends on any
// number here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/compute_threads.hpp"

namespace troupe::cpu {

[[nodiscard]] constexpr std::uint32_t divide_up(std::uint32_t a, std::uint32_t b) {
    return (a + b - 1) / b;
}

// Calls function(begin, end, worker) for ranges of at most `step` that cover [0, count).
template <class Function>
void for_each_range(ComputeThreads& threads, std::uint32_t count, std::uint32_t step,
                    Function&& function) {
    threads.run(divide_up(count, step), [&](std::uint32_t piece, std::uint32_t worker) {
        const std::uint32_t begin = piece * step;
        function(begin, std::min(begin + step, count), worker);
    });
}

// Part of a matrix product: some panels of the weights times some rows of activations.
struct ProductPiece {
    std::uint32_t panel_begin = 0, panel_end = 0;
    std::uint32_t row_begin = 0, row_end = 0;
};

// Cuts a product of `panels` by `rows`. Panels go in even numbers, so that a piece's columns are
// whole blocks of 32; rows in whole tiles.
class ProductGrid {
 public:
    static constexpr std::uint32_t kRowStep = 128;

    ProductGrid(std::size_t panels, std::uint32_t rows, std::uint32_t workers,
                std::uint32_t panel_step_max)
        : panels_(static_cast<std::uint32_t>(panels)), rows_(rows) {
        constexpr std::uint32_t kPiecesPerWorker = 4;
        row_pieces_ = divide_up(rows, kRowStep);
        const std::uint32_t wanted = divide_up(kPiecesPerWorker * workers, row_pieces_);
        const std::uint32_t step = divide_up(panels_, wanted);
        panel_step_ = std::clamp((step + 1) / 2 * 2, 2U, panel_step_max);
        panel_pieces_ = divide_up(panels_, panel_step_);
    }

    [[nodiscard]] std::uint32_t pieces() const { return panel_pieces_ * row_pieces_; }
    [[nodiscard]] ProductPiece operator[](std::uint32_t piece) const {
        // Neighbours share their panels, which are what is large.
        const std::uint32_t panel = piece / row_pieces_ * panel_step_;
        const std::uint32_t row = piece % row_pieces_ * kRowStep;
        return {panel, std::min(panel + panel_step_, panels_), row,
                std::min(row + kRowStep, rows_)};
    }

 private:
    std::uint32_t panels_;
    std::uint32_t rows_;
    std::uint32_t row_pieces_ = 0;
    std::uint32_t panel_step_ = 0;
    std::uint32_t panel_pieces_ = 0;
};

}  // namespace troupe::cpu
