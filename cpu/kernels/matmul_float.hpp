// Float panels times float rows for any vector type (see vector_math.hpp): matmul_panels panels by
// matmul_rows rows stay in registers while k runs once, so each chain is in k's order.
#pragma once

#include <cstddef>
#include <utility>

#include "cpu/kernels/kernel_types.hpp"

namespace troupe::cpu {

// Writes one panel's sixteen results of one row, cut to the matrix.
template <class V>
[[gnu::always_inline]] inline void write_result(V value, const PackedMatrix& w, std::size_t panel,
                                                std::size_t row, const MatmulPart& part) {
    const std::size_t column = panel * panel_rows;
    float* out = part.out + row * part.out_stride + column;
    if (w.rows - column >= panel_rows) {
        if (part.mode == Accumulate::add) value = V::load(out) + value;
        value.store(out);
    } else {
        const std::size_t count = w.rows - column;
        if (part.mode == Accumulate::add) value = V::load_partial(out, count) + value;
        value.store_partial(out, count);
    }
}

template <class V, PanelFormat Format>
struct FloatPanels {
    static constexpr std::size_t column_bytes = panel_block_bytes(Format);

    [[gnu::always_inline]] static V load(const std::byte* column) {
        if constexpr (Format == PanelFormat::f32) {
            return V::load(reinterpret_cast<const float*>(column));
        } else if constexpr (Format == PanelFormat::f16) {
            return V::load_half(reinterpret_cast<const std::uint16_t*>(column));
        } else {
            return V::load_bfloat16(reinterpret_cast<const std::uint16_t*>(column));
        }
    }

    template <std::size_t Panels, std::size_t Rows>
    static void tile(const PackedMatrix& w, const FloatRows& x, std::size_t panel, std::size_t row,
                     const MatmulPart& part) {
        V acc[Panels][Rows];
        const std::byte* weights[Panels];
        const float* values[Rows];
        for (std::size_t p = 0; p < Panels; ++p) {
            weights[p] = w.panel(panel + p);
            for (std::size_t t = 0; t < Rows; ++t)
                acc[p][t] = V::set(0.0F);
        }
        for (std::size_t t = 0; t < Rows; ++t)
            values[t] = x.data + (row + t) * x.stride;
        for (std::size_t k = 0; k < w.columns; ++k) {
            V weight[Panels];
            for (std::size_t p = 0; p < Panels; ++p) {
                prefetch_ahead(weights[p] + k * column_bytes, column_bytes);
                weight[p] = load(weights[p] + k * column_bytes);
            }
            for (std::size_t t = 0; t < Rows; ++t) {
                const V value = V::set(values[t][k]);
                for (std::size_t p = 0; p < Panels; ++p) {
                    acc[p][t] = V::fma(weight[p], value, acc[p][t]);
                }
            }
        }
        for (std::size_t p = 0; p < Panels; ++p) {
            for (std::size_t t = 0; t < Rows; ++t) {
                write_result(acc[p][t], w, panel + p, row + t, part);
            }
        }
    }

    template <std::size_t Panels>
    static void rows(const PackedMatrix& w, const FloatRows& x, std::size_t panel,
                     const MatmulPart& part) {
        std::size_t row = part.row_begin;
        for (; row + V::matmul_rows <= part.row_end; row += V::matmul_rows) {
            tile<Panels, V::matmul_rows>(w, x, panel, row, part);
        }
        for (; row + 2 <= part.row_end; row += 2)
            tile<Panels, 2>(w, x, panel, row, part);
        if (row < part.row_end) tile<Panels, 1>(w, x, panel, row, part);
    }

    static void matmul(const PackedMatrix& w, const FloatRows& x, const MatmulPart& part) {
        std::size_t panel = part.panel_begin;
        for (; panel + V::matmul_panels <= part.panel_end; panel += V::matmul_panels) {
            rows<V::matmul_panels>(w, x, panel, part);
        }
        for (; panel < part.panel_end; ++panel)
            rows<1>(w, x, panel, part);
    }
};

template <class V>
void matmul_float(const PackedMatrix& w, const FloatRows& x, const MatmulPart& part) {
    switch (w.format) {
        case PanelFormat::f32:
            return FloatPanels<V, PanelFormat::f32>::matmul(w, x, part);
        case PanelFormat::f16:
            return FloatPanels<V, PanelFormat::f16>::matmul(w, x, part);
        case PanelFormat::bf16:
            return FloatPanels<V, PanelFormat::bf16>::matmul(w, x, part);
        default:
            return;
    }
}

}  // namespace troupe::cpu
