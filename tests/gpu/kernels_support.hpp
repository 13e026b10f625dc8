// What the tests of kernels share: random numbers and matrices, how far results are apart.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/device_model.hpp"
#include "model/half.hpp"
#include "model/tensor_types.hpp"
#include "model/weights.hpp"

namespace troupe::test {

using Random = std::mt19937;

inline std::vector<float> random_floats(std::size_t count, Random& random, float scale = 1) {
    std::vector<float> values(count);
    for (float& value : values)
        value = std::normal_distribution<float>(0, scale)(random);
    return values;
}

// The largest difference, as a share of the largest expected magnitude.
inline double error_of(const std::vector<float>& values, const std::vector<float>& expected) {
    REQUIRE(values.size() == expected.size());
    double worst = 0;
    double largest = 1e-30;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double difference = std::abs(double{values[i]} - expected[i]);
        worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
        largest = std::max(largest, std::abs(double{expected[i]}));
    }
    return worst / largest;
}

inline bool same_bits(const float* a, const float* b, std::size_t count) {
    return std::memcmp(a, b, count * sizeof(float)) == 0;
}

// A matrix of a GGML type with random content, and its values.
struct RandomMatrix {
    std::vector<std::byte> bytes;
    model::Matrix matrix;
    std::vector<float> values;  // [rows][columns]

    RandomMatrix(model::TensorType type, std::uint32_t rows, std::uint32_t columns,
                 Random& random) {
        const std::size_t size = *model::tensor_bytes(type, columns, rows);
        bytes.resize(size);
        const auto& info = model::tensor_type_info(type);
        for (std::byte& byte : bytes)
            byte = static_cast<std::byte>(random());
        // Whatever is read as a float must be a small one.
        for (std::size_t at = 0; at < size; at += info.block_bytes) {
            using enum model::TensorType;
            const std::size_t floats = type == q4_1 || type == q4_k || type == q5_k ? 2 : 1;
            const std::size_t first = type == q6_k ? 208 : 0;
            for (std::size_t i = 0; i < floats; ++i) {
                const float value = std::normal_distribution<float>(
                    0, first == 0 && floats < 2 ? 0.1F : 0.01F)(random);
                const std::uint16_t half = type == model::TensorType::bf16
                                               ? model::float_to_bfloat16(value)
                                               : model::float_to_half(value);
                if (type == model::TensorType::f32) {
                    std::memcpy(bytes.data() + at, &value, sizeof value);
                } else {
                    std::memcpy(bytes.data() + at + first + 2 * i, &half, sizeof half);
                }
            }
        }
        matrix = {"random", type, rows, columns, bytes, {}};
        values.resize(std::size_t{rows} * columns);
        model::dequantise(type, bytes, values);
    }
    // Of a matrix of bfloat16.
    void set_bfloat16(std::size_t index, float value) {
        const std::uint16_t bits = model::float_to_bfloat16(value);
        std::memcpy(bytes.data() + 2 * index, &bits, sizeof bits);
        matrix.bytes = bytes;
        model::dequantise(matrix.type, bytes, values);
    }
};

inline std::vector<float> multiply_truth(const RandomMatrix& w, const std::vector<float>& x,
                                         std::size_t rows) {
    std::vector<float> out(rows * w.matrix.rows);
    for (std::size_t t = 0; t < rows; ++t) {
        for (std::size_t r = 0; r < w.matrix.rows; ++r) {
            double sum = 0;
            for (std::size_t c = 0; c < w.matrix.columns; ++c)
                sum += double{w.values[r * w.matrix.columns + c]} * x[t * w.matrix.columns + c];
            out[t * w.matrix.rows + r] = static_cast<float>(sum);
        }
    }
    return out;
}

inline gpu::MatrixBuffer upload(const RandomMatrix& matrix) {
    const model::Matrix* const part = &matrix.matrix;
    return gpu::upload_matrix({&part, 1}, gpu::common_type({&part, 1}));
}

}  // namespace troupe::test
