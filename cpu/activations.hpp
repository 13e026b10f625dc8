// Rows of activations on their way into a matrix product: as floats for f32 panels, as int8 blocks
// for quantised ones. The consumer's weights decide which of the two is filled. Memory is taken
// once, for the most rows of a step. Rows may be written by different threads at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/kernels/aligned_buffer.hpp"
#include "cpu/kernels/kernels.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

// Floats between rows of this width: whole cache lines.
[[nodiscard]] constexpr std::size_t row_stride(std::size_t columns) {
    return (columns + 15) / 16 * 16;
}

// [rows][columns] floats, rows `stride` apart.
struct FloatBuffer {
    AlignedBuffer memory;
    std::size_t stride = 0;

    [[nodiscard]] static Result<FloatBuffer> allocate(std::size_t rows, std::size_t columns) {
        FloatBuffer buffer;
        buffer.stride = row_stride(columns);
        Result<AlignedBuffer> memory =
            AlignedBuffer::allocate(rows * buffer.stride * sizeof(float));
        if (!memory) return memory.error();
        buffer.memory = std::move(*memory);
        return buffer;
    }
    [[nodiscard]] float* data() const { return reinterpret_cast<float*>(memory.data()); }
    [[nodiscard]] float* row(std::size_t index) const { return data() + index * stride; }
};

struct Activations {
    FloatBuffer floats;
    AlignedBuffer block_memory;
    AlignedBuffer outlier_memory;
    QuantizedRows quantized;

    // Takes address space for both forms; the one that no consumer reads is never touched. There
    // are no blocks where the columns are not whole ones: then no quantised weights can follow.
    [[nodiscard]] static Result<Activations> allocate(std::size_t rows, std::size_t columns) {
        Activations a;
        Result<FloatBuffer> floats = FloatBuffer::allocate(rows, columns);
        if (!floats) return floats.error();
        a.floats = std::move(*floats);
        if (columns % block_columns != 0) return a;
        Result<AlignedBuffer> blocks =
            AlignedBuffer::allocate(quantized_blocks(rows, columns) * sizeof(ActivationBlock));
        if (!blocks) return blocks.error();
        Result<AlignedBuffer> outliers =
            AlignedBuffer::allocate(outlier_blocks(rows, columns) * sizeof(OutlierBlock));
        if (!outliers) return outliers.error();
        a.block_memory = std::move(*blocks);
        a.outlier_memory = std::move(*outliers);
        a.quantized = {reinterpret_cast<ActivationBlock*>(a.block_memory.data()),
                       reinterpret_cast<OutlierBlock*>(a.outlier_memory.data()), columns};
        return a;
    }
};

// Panels [begin, end) of a matrix as a matrix of their own.
[[nodiscard]] inline PackedMatrix panels_of(const PackedMatrix& w, std::size_t begin,
                                            std::size_t end) {
    PackedMatrix part = w;
    part.rows = std::min(end * panel_rows, w.rows) - begin * panel_rows;
    part.data = w.data + begin * w.panel_bytes();
    return part;
}

}  // namespace troupe::cpu
