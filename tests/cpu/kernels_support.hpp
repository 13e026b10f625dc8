// What the kernel tests share: random raw weights, packed matrices with their memory, quantised
// rows with theirs, and comparison of bits.
#pragma once

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/kernels/aligned_buffer.hpp"
#include "cpu/kernels/half.hpp"
#include "cpu/kernels/kernels.hpp"

namespace troupe::test {

using namespace troupe::cpu;

struct Random {
    std::mt19937 engine{1};

    std::size_t below(std::size_t n) { return engine() % n; }
    float uniform() { return static_cast<float>(engine() >> 8) * 0x1p-23F - 1.0F; }  // [-1, 1)
    std::vector<float> floats(std::size_t count, float scale = 1.0F) {
        std::vector<float> out(count);
        for (float& x : out)
            x = uniform() * scale;
        return out;
    }
};

inline void put_half(std::byte* at, float value) {
    const std::uint16_t half = float_to_half(value);
    std::memcpy(at, &half, 2);
}

// Random weights in a file's layout.
struct RawWeights {
    std::vector<std::byte> bytes;
    RawMatrix matrix;

    RawWeights(WeightType type, std::size_t rows, std::size_t columns, Random& random) {
        const std::size_t row_bytes = raw_row_bytes(type, columns);
        bytes.resize(rows * row_bytes);
        for (std::byte& b : bytes)
            b = static_cast<std::byte>(random.engine());
        const bool blocks = !is_float(native_panel_format(type));
        const std::size_t unit = row_bytes / (blocks ? columns / block_columns : columns);
        for (std::size_t at = 0; at < bytes.size(); at += unit) {
            std::byte* block = bytes.data() + at;
            const float value = random.uniform();
            if (type == WeightType::f32) {
                std::memcpy(block, &value, 4);
            } else if (type == WeightType::bf16) {
                const auto high =
                    static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
                std::memcpy(block, &high, 2);
            } else {
                put_half(block, value * (type == WeightType::f16 ? 1.0F : 0.02F));
                if (has_minimum(native_panel_format(type)))
                    put_half(block + 2, random.uniform() * 0.2F);
                if (type == WeightType::q5_k)
                    for (std::size_t j = 6; j < unit; ++j)
                        block[j] &= std::byte{31};
            }
        }
        matrix = {type, rows, columns, bytes.data()};
    }

    [[nodiscard]] std::vector<float> row(std::size_t index) const {
        std::vector<float> out(matrix.columns);
        dequantize_row(matrix.type,
                       matrix.data + index * raw_row_bytes(matrix.type, matrix.columns),
                       matrix.columns, out.data());
        return out;
    }
};

struct Packed {
    AlignedBuffer memory;
    PackedMatrix matrix;

    Packed(const std::vector<RawMatrix>& parts, PanelFormat format) {
        matrix.format = format;
        matrix.columns = parts.front().columns;
        for (const RawMatrix& part : parts)
            matrix.rows += part.rows;
        memory = AlignedBuffer::allocate(packed_bytes(format, matrix.rows, matrix.columns)).value();
        matrix.data = memory.data();
        pack_panels(parts, 0, matrix.panels(), matrix).value();
    }
};

struct Quantized {
    AlignedBuffer memory;
    AlignedBuffer outlier_memory;
    QuantizedRows rows;

    Quantized(std::size_t count, std::size_t columns)
        : memory(AlignedBuffer::allocate(quantized_blocks(count, columns) * sizeof(ActivationBlock))
                     .value()),
          outlier_memory(
              AlignedBuffer::allocate(outlier_blocks(count, columns) * sizeof(OutlierBlock))
                  .value()),
          rows{reinterpret_cast<ActivationBlock*>(memory.data()),
               reinterpret_cast<OutlierBlock*>(outlier_memory.data()), columns} {}
    Quantized(const std::vector<float>& values, std::size_t columns, const Kernels& kernels)
        : Quantized(values.size() / columns, columns) {
        for (std::size_t t = 0; t < values.size() / columns; ++t) {
            kernels.quantize(values.data() + t * columns, rows, t);
        }
    }
    // 1 + the column of the outlier in a block of row t, or 0.
    [[nodiscard]] std::size_t place(std::size_t t, std::size_t block) const {
        return rows.outlier(t, block).place[t % tile_rows];
    }
    [[nodiscard]] float outlier(std::size_t t, std::size_t block) const {
        return place(t, block) == 0 ? 0.0F : rows.outlier(t, block).x[t % tile_rows];
    }
    // What quantised row t stands for.
    [[nodiscard]] float value(std::size_t t, std::size_t k) const {
        const std::size_t index = k / block_columns;
        if (k % block_columns + 1 == place(t, index)) return outlier(t, index);
        const ActivationBlock& block = rows.block(t, index);
        return block.d * static_cast<float>(block.q[k % block_columns]);
    }
};

// Equal bits, except that any NaN equals any NaN.
inline bool same_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!same_bits(a[i], b[i])) {
            UNSCOPED_INFO("element " << i << ": " << a[i] << " and " << b[i]);
            return false;
        }
    }
    return true;
}

inline bool same_block(const ActivationBlock& a, const ActivationBlock& b) {
    return std::memcmp(a.q, b.q, sizeof(a.q)) == 0 && same_bits(a.d, b.d) && same_bits(a.s, b.s) &&
           a.start_u4 == b.start_u4 && a.start_u8 == b.start_u8;
}

// The sets other than plain that this machine has.
inline std::vector<const Kernels*> fast_kernels() {
    std::vector<const Kernels*> out;
    for (const Kernels* set : available_kernels()) {
        if (set != &plain_kernels()) out.push_back(set);
    }
    return out;
}

}  // namespace troupe::test
