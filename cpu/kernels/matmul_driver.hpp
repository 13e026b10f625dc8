// The loops around a quantised register tile, for any set (see MatmulDriver): rows in groups
// whose activations stay in the L2 cache, panels, then tiles of up to 16 rows, and last the rows'
// outliers. A panel is unpacked once a group where that pays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/matmul_float.hpp"
#include "cpu/kernels/outliers.hpp"

namespace troupe::cpu {

inline constexpr std::size_t row_group = 128;           // most rows in a group
inline constexpr std::size_t group_bytes = 256 * 1024;  // of activations in a group
inline constexpr std::size_t unpacked_blocks = 36;      // at a time

// Rows of a group: whole tiles, at least one.
[[gnu::always_inline]] inline std::size_t rows_of_group(std::size_t columns) {
    const std::size_t tile_bytes = tile_rows * columns / block_columns * sizeof(ActivationBlock);
    const std::size_t tiles = group_bytes / tile_bytes;
    constexpr std::size_t tiles_max = row_group / tile_rows;
    return tile_rows * (tiles < 1 ? 1 : tiles > tiles_max ? tiles_max : tiles);
}

// Tile has V, Block (an unpacked block) and, static, with x the first row's first block:
//   accumulate_packed(panel, rows, blocks, x, acc)    continue acc[rows][16] over a packed panel
//   unpack_blocks(panel, first, count, Block* out)
//   accumulate_unpacked(const Block*, rows, blocks, x, acc)
// or, where unpacks_meanwhile is true, with one argument more: it calls next(b) for all b < blocks,
// which unpacks a block of those that are multiplied after these.
template <class Tile, PanelFormat Format>
struct MatmulDriver {
    using V = typename Tile::V;
    using RowOutliers = Outliers<V, Format>;

    static std::size_t tile_end(std::size_t row, std::size_t end) {
        const std::size_t next = (row / tile_rows + 1) * tile_rows;
        return next < end ? next : end;
    }

    static void finish(const PackedMatrix& w, std::size_t panel, const RowOutliers& outliers,
                       std::size_t begin, std::size_t end, float* acc, const MatmulPart& part) {
        outliers.extend(w.panel(panel), acc);
        for (std::size_t t = begin; t < end; ++t) {
            write_result(V::load(acc + (t - begin) * panel_rows), w, panel, t, part);
        }
    }

    static void panel_once(const PackedMatrix& w, const QuantizedRows& x,
                           const RowOutliers& outliers, std::size_t panel, std::size_t begin,
                           std::size_t end, const MatmulPart& part) {
        alignas(64) float acc[Tile::rows_to_unpack * panel_rows];
        for (std::size_t i = 0; i < (end - begin) * panel_rows; ++i)
            acc[i] = 0.0F;
        for (std::size_t row = begin, next = 0; row < end; row = next) {
            next = tile_end(row, end);
            Tile::accumulate_packed(w.panel(panel), next - row, w.columns / block_columns,
                                    &x.block(row, 0), acc + (row - begin) * panel_rows);
        }
        finish(w, panel, outliers, begin, end, acc, part);
    }

    // Blocks of a panel that are unpacked at a time.
    struct Stretch {
        std::size_t panel = 0, first = 0, count = 0;
        const std::byte* packed = nullptr;
        typename Tile::Block* unpacked = nullptr;

        [[gnu::always_inline]] void operator()(std::size_t b) const {
            if (b < count) Tile::unpack_blocks(packed, first + b, 1, unpacked + b);
        }
        void unpack_from(std::size_t begin) const {
            for (std::size_t b = begin; b < count; ++b)
                (*this)(b);
        }
    };

    // While the first tile of rows is multiplied by one stretch the next is unpacked, where the
    // tile can do that: so reading the weights and computing overlap.
    static void multiply_stretch(const Stretch& own, const Stretch& next, const QuantizedRows& x,
                                 std::size_t begin, std::size_t end, float* acc) {
        for (std::size_t row = begin, then = 0; row < end; row = then) {
            then = tile_end(row, end);
            const ActivationBlock* const rows = &x.block(row, own.first);
            float* const sums = acc + (row - begin) * panel_rows;
            if constexpr (Tile::unpacks_meanwhile) {
                Tile::accumulate_unpacked(own.unpacked, then - row, own.count, rows, sums,
                                          row == begin ? next : Stretch{});
            } else {
                Tile::accumulate_unpacked(own.unpacked, then - row, own.count, rows, sums);
            }
        }
        next.unpack_from(Tile::unpacks_meanwhile ? own.count : 0);
    }

    // Panels are cut into stretches of about the same length.
    static void panels_unpacked(const PackedMatrix& w, const QuantizedRows& x,
                                const RowOutliers& outliers, std::size_t begin, std::size_t end,
                                const MatmulPart& part) {
        constexpr std::size_t buffers = Tile::unpacks_meanwhile ? 2 : 1;
        constexpr std::size_t most = unpacked_blocks / buffers;
        alignas(64) typename Tile::Block unpacked[buffers][most];
        alignas(64) float acc[row_group * panel_rows];
        const std::size_t blocks = w.columns / block_columns;
        const std::size_t of_panel = (blocks + most - 1) / most;
        const std::size_t length = (blocks + of_panel - 1) / of_panel;
        const std::size_t stretches = (part.panel_end - part.panel_begin) * of_panel;
        const auto stretch = [&](std::size_t index) {
            if (index == stretches) return Stretch{};
            const std::size_t panel = part.panel_begin + index / of_panel;
            const std::size_t first = index % of_panel * length;
            return Stretch{panel, first, blocks - first < length ? blocks - first : length,
                           w.panel(panel), unpacked[index % buffers]};
        };
        Stretch own = stretch(0);
        own.unpack_from(0);
        for (std::size_t index = 0; index < stretches; ++index) {
            if (own.first == 0) {
                for (std::size_t i = 0; i < (end - begin) * panel_rows; ++i)
                    acc[i] = 0.0F;
            }
            const Stretch next = stretch(index + 1);
            multiply_stretch(own, next, x, begin, end, acc);
            if (own.first + own.count == blocks)
                finish(w, own.panel, outliers, begin, end, acc, part);
            own = next;
        }
    }

    static void matmul(const PackedMatrix& w, const QuantizedRows& x, const MatmulPart& part) {
        const std::size_t group = rows_of_group(w.columns);
        for (std::size_t begin = part.row_begin; begin < part.row_end;) {
            const std::size_t limit = begin / tile_rows * tile_rows + group;
            const std::size_t end = limit < part.row_end ? limit : part.row_end;
            OutlierList own;  // not touched where the thread keeps lists
            const bool kept = part.outliers != nullptr;
            const std::uint64_t product = kept ? part.product : 0;
            OutlierList& list =
                kept ? kept_list(*part.outliers, product, &x.block(begin, 0), end - begin) : own;
            const RowOutliers outliers(x, begin, end, list, product);
            if (end - begin >= Tile::rows_to_unpack) {
                panels_unpacked(w, x, outliers, begin, end, part);
            } else {
                for (std::size_t panel = part.panel_begin; panel < part.panel_end; ++panel)
                    panel_once(w, x, outliers, panel, begin, end, part);
            }
            begin = end;
        }
    }
};

// The same for each quantised format; Tile<Format> as above.
template <template <PanelFormat> class Tile>
static void matmul_quantized(const PackedMatrix& w, const QuantizedRows& x,
                             const MatmulPart& part) {
    switch (w.format) {
        case PanelFormat::q4_1:
            return MatmulDriver<Tile<PanelFormat::q4_1>, PanelFormat::q4_1>::matmul(w, x, part);
        case PanelFormat::q4_0:
            return MatmulDriver<Tile<PanelFormat::q4_0>, PanelFormat::q4_0>::matmul(w, x, part);
        case PanelFormat::q8_0:
            return MatmulDriver<Tile<PanelFormat::q8_0>, PanelFormat::q8_0>::matmul(w, x, part);
        case PanelFormat::q4_k:
            return MatmulDriver<Tile<PanelFormat::q4_k>, PanelFormat::q4_k>::matmul(w, x, part);
        case PanelFormat::q5_k:
            return MatmulDriver<Tile<PanelFormat::q5_k>, PanelFormat::q5_k>::matmul(w, x, part);
        case PanelFormat::q6_k:
            return MatmulDriver<Tile<PanelFormat::q6_k>, PanelFormat::q6_k>::matmul(w, x, part);
        case PanelFormat::f32:
        case PanelFormat::f16:
        case PanelFormat::bf16:
            return;
    }
}

}  // namespace troupe::cpu
