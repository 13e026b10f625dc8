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
inline constexpr std::size_t unpacked_blocks = 32;      // of one panel at a time

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

    static void panel_unpacked(const PackedMatrix& w, const QuantizedRows& x,
                               const RowOutliers& outliers, std::size_t panel, std::size_t begin,
                               std::size_t end, const MatmulPart& part) {
        alignas(64) typename Tile::Block unpacked[unpacked_blocks];
        alignas(64) float acc[row_group * panel_rows];
        const std::size_t blocks = w.columns / block_columns;
        for (std::size_t i = 0; i < (end - begin) * panel_rows; ++i)
            acc[i] = 0.0F;
        for (std::size_t first = 0; first < blocks; first += unpacked_blocks) {
            const std::size_t count =
                blocks - first < unpacked_blocks ? blocks - first : unpacked_blocks;
            Tile::unpack_blocks(w.panel(panel), first, count, unpacked);
            for (std::size_t row = begin, next = 0; row < end; row = next) {
                next = tile_end(row, end);
                Tile::accumulate_unpacked(unpacked, next - row, count, &x.block(row, first),
                                          acc + (row - begin) * panel_rows);
            }
        }
        finish(w, panel, outliers, begin, end, acc, part);
    }

    static void matmul(const PackedMatrix& w, const QuantizedRows& x, const MatmulPart& part) {
        const std::size_t group = rows_of_group(w.columns);
        for (std::size_t begin = part.row_begin; begin < part.row_end;) {
            const std::size_t limit = begin / tile_rows * tile_rows + group;
            const std::size_t end = limit < part.row_end ? limit : part.row_end;
            const RowOutliers outliers(x, begin, end);
            for (std::size_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
                if (end - begin >= Tile::rows_to_unpack) {
                    panel_unpacked(w, x, outliers, panel, begin, end, part);
                } else {
                    panel_once(w, x, outliers, panel, begin, end, part);
                }
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
